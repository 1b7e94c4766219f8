// Products by AMX tiles; those of few rows with quantized weights are AVX-512's.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the _mm512_undefined_ps() of its own headers for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "backend/cpu/bf16_amx.inl"
#include "backend/cpu/g32_amx.inl"

namespace skein::cpu {
namespace {

// Dots have to be stored before they can be scaled: fewer rows are not worth it.
constexpr size_t kLeastG32Rows = 16;

// kFew is AVX-512's kernel for the same weights.
template <Codes kCodes, bool kHalves, bool kMinimum, LinearKernels::G32 LinearKernels::*kFew>
void g32_by_rows(const G32Multiply& a) {
  a.rows < kLeastG32Rows ? (kAvx512Linear.*kFew)(a)
                         : G32Amx<kCodes, kHalves, kMinimum>::multiply(a);
}

size_t quantize(const float* x, size_t groups, size_t row, QuantizedRecord* out,
                Outlier* outliers) {
  return kAvx512Linear.quantize(x, groups, row, out, outliers);
}

void add_outlier_to(const OutlierMultiply& a) {
  kAvx512Linear.add_outlier(a);
}

size_t find_residuals_of(const float* x, size_t inputs, Bf16Residual* out) {
  return kAvx512Linear.find_residuals(x, inputs, out);
}

void add_residuals_to(const ResidualMultiply& a) {
  kAvx512Linear.add_residuals(a);
}

using Kernels = LinearKernels;

}  // namespace

constexpr LinearKernels kAmxLinear = {
    .panel_rows = DotAvx512::kPanelRows,
    .quantize = quantize,
    .round = round_to_halves,
    .nibbles = g32_by_rows<Codes::kNibbles, false, false, &Kernels::nibbles>,
    .nibbles_minimum = g32_by_rows<Codes::kNibbles, false, true, &Kernels::nibbles_minimum>,
    .table = g32_by_rows<Codes::kTable, false, false, &Kernels::table>,
    .fives = g32_by_rows<Codes::kFives, false, false, &Kernels::fives>,
    .fives_minimum = g32_by_rows<Codes::kFives, false, true, &Kernels::fives_minimum>,
    .bytes = g32_by_rows<Codes::kBytes, false, false, &Kernels::bytes>,
    .bytes_minimum = g32_by_rows<Codes::kBytes, false, true, &Kernels::bytes_minimum>,
    .twos_halves_minimum = g32_by_rows<Codes::kTwos, true, true, &Kernels::twos_halves_minimum>,
    .nibbles_halves = g32_by_rows<Codes::kNibbles, true, false, &Kernels::nibbles_halves>,
    .sixes_halves = g32_by_rows<Codes::kSixes, true, false, &Kernels::sixes_halves>,
    .add_outlier = add_outlier_to,
    .bf16 = bf16_amx,
    .find_residuals = find_residuals_of,
    .add_residuals = add_residuals_to,
};

}  // namespace skein::cpu
