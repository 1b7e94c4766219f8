// Products by AMX tiles; those with quantized weights are AVX-512's.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the _mm512_undefined_ps() of its own headers for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "backend/cpu/bf16_amx.inl"

namespace skein::cpu {
namespace {

// AVX-512's kernel at that place of its table.
template <LinearKernels::G32 LinearKernels::*kKernel>
void g32(const G32Multiply& a) {
  (kAvx512Linear.*kKernel)(a);
}

void quantize(const float* x, size_t groups, size_t row, QuantizedRecord* out) {
  kAvx512Linear.quantize(x, groups, row, out);
}

size_t find_rests_of(const float* x, size_t inputs, Bf16Rest* out) {
  return kAvx512Linear.find_rests(x, inputs, out);
}

void add_rests_to(const RestMultiply& a) {
  kAvx512Linear.add_rests(a);
}

using Kernels = LinearKernels;

}  // namespace

constexpr LinearKernels kAmxLinear = {
    .quantize = quantize,
    .round = round_to_halves,
    .nibbles = g32<&Kernels::nibbles>,
    .nibbles_minimum = g32<&Kernels::nibbles_minimum>,
    .table = g32<&Kernels::table>,
    .bytes = g32<&Kernels::bytes>,
    .bytes_minimum = g32<&Kernels::bytes_minimum>,
    .nibbles_halves = g32<&Kernels::nibbles_halves>,
    .nibbles_halves_minimum = g32<&Kernels::nibbles_halves_minimum>,
    .bytes_halves = g32<&Kernels::bytes_halves>,
    .bf16 = bf16_amx,
    .find_rests = find_rests_of,
    .add_rests = add_rests_to,
};

}  // namespace skein::cpu
