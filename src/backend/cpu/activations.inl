// Activations for linear_kernels.h, over a Dot (dot_scalar.h).
#pragma once

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// arithmetic::quantize_group.
template <class V>
void quantize_group(const float* x, QuantizedRow& out) {
  using F = typename V::F;
  const F low = V::load(x), high = V::load(x + 16);
  const uint32_t bits = V::largest_bits(low, high);
  const float largest = __builtin_bit_cast(float, bits);
  const bool is_number = bits < arithmetic::kInfinityBits;
  const bool is_zero = is_number && largest < arithmetic::kSmallestGroup;
  const F inverse = V::splat(is_number && !is_zero ? arithmetic::kLargestInt8 / largest : 0.0F);
  const float scale = is_number ? largest / arithmetic::kLargestInt8 : __builtin_nanf("");
  const F zero = V::splat(0.0F);
  const int32_t first = V::store_int8(is_number ? V::mul(low, inverse) : zero, out.q);
  const int32_t second = V::store_int8(is_number ? V::mul(high, inverse) : zero, out.q + 16);
  const int32_t sums[kColumns] = {first + second, first, second};
  out.scale = is_zero ? 0.0F : scale;
  out.scaled_sum = out.scale * static_cast<float>(sums[kWhole]);
  for (size_t i = 0; i < kColumns; ++i) {
    out.start_8[i] = arithmetic::kDotBiasBits - 8 * sums[i];
    out.start_128[i] = arithmetic::kDotBiasBits - 128 * sums[i];
  }
}

template <class V>
void quantize_row(const float* x, size_t groups, size_t row, QuantizedRecord* out) {
  for (size_t g = 0; g < groups; ++g) {
    quantize_group<V>(x + g * arithmetic::kGroup, out[g].row[row]);
  }
}

template <class V>
void round_row(const float* x, size_t inputs, size_t row, Bf16Record* out) {
  constexpr size_t kGroup = arithmetic::kGroup;
  const size_t padded = (inputs + kGroup - 1) / kGroup * kGroup;
  for (size_t k = 0; k < padded; k += 16) {
    const size_t left = k < inputs ? inputs - k : 0;
    const typename V::F in = load_lanes<V>(x + (left > 0 ? k : 0), left < 16 ? left : 16);
    V::store(out[k / kGroup].x[row] + k % kGroup, V::round_bf16(in));
  }
}

template <class V>
size_t find_residuals(const float* x, size_t inputs, Bf16Residual* out) {
  using F = typename V::F;
  F squares = V::splat(0.0F);
  for_lanes(inputs, [&](size_t k, size_t lanes) {
    const F in = load_lanes<V>(x + k, lanes);
    squares = V::fma(in, in, squares);
  });
  const float least = arithmetic::kRestSquare * V::sum(squares);
  const float count = static_cast<float>(inputs);
  size_t found = 0;
  for (size_t first = 0; first < inputs; first += arithmetic::kGroup) {
    F in[2], magnitude[2];
    for (size_t i = 0; i < 2; ++i) {
      const size_t at = first + 16 * i, left = at < inputs ? inputs - at : 0;
      in[i] = load_lanes<V>(x + (left > 0 ? at : 0), left < 16 ? left : 16);
      magnitude[i] = V::bit_and(in[i], 0x7fffffffU);
    }
    const float largest = V::largest(V::max(magnitude[0], magnitude[1]));
    if (!(largest * largest * count > least)) continue;
    Bf16Residual& residual = out[found++];
    residual.group = first / arithmetic::kGroup;
    for (size_t i = 0; i < 2; ++i) {
      V::store(residual.x + 16 * i, V::round_bf16(V::sub(in[i], V::round_bf16(in[i]))));
    }
  }
  return found;
}

}  // namespace
}  // namespace skein::cpu
