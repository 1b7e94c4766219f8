// Activations for linear_kernels.h, over a Dot (dot_scalar.h).
#pragma once

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// arithmetic::quantize_group; the largest magnitude.
template <class V>
__attribute__((always_inline)) inline float quantize_group(const float* x, QuantizedRow& out) {
  using F = typename V::F;
  const F low = V::load(x), high = V::load(x + 16);
  const uint32_t bits = V::largest_bits(low, high);
  const float largest = __builtin_bit_cast(float, bits);
  const bool is_number = bits < arithmetic::kInfinityBits;
  const bool is_zero = is_number && largest < arithmetic::kSmallestGroup;
  const F inverse = V::splat(is_number && !is_zero ? arithmetic::kLargestInt8 / largest : 0.0F);
  const float scale = is_number ? largest / arithmetic::kLargestInt8 : __builtin_nanf("");
  const F zero = V::splat(0.0F);
  int32_t halves[2];
  V::store_int8(is_number ? V::mul(low, inverse) : zero, is_number ? V::mul(high, inverse) : zero,
                out.q, halves);
  const int32_t sums[kColumns] = {halves[0] + halves[1], halves[0], halves[1]};
  out.scale = is_zero ? 0.0F : scale;
  out.scaled_sum = out.scale * static_cast<float>(sums[kWhole]);
  for (size_t i = 0; i < kColumns; ++i) {
    out.start_8[i] = arithmetic::kDotBiasBits - 8 * sums[i];
    out.start_128[i] = arithmetic::kDotBiasBits - 128 * sums[i];
  }
  return largest;
}

// The largest of a group is an outlier, the first among equals: quantizes the others.
template <class V>
__attribute__((noinline)) Outlier take_outlier(const float* x, uint32_t largest_bits,
                                               QuantizedRow& out) {
  float rest[arithmetic::kGroup];
  uint32_t column = 0;
  for (uint32_t k = arithmetic::kGroup; k-- > 0;) {
    rest[k] = x[k];
    if ((__builtin_bit_cast(uint32_t, x[k]) & 0x7fffffffU) == largest_bits) column = k;
  }
  rest[column] = 0;
  quantize_group<V>(rest, out);
  return {x[column], column};
}

// Looking for outliers costs a row that has none an addition and a comparison a group.
template <class V>
size_t quantize_row(const float* x, size_t groups, size_t row, QuantizedRecord* out,
                    Outlier* outliers) {
  constexpr size_t kGroup = arithmetic::kGroup;
  float sum = 0, largest = 0;
  for (size_t g = 0; g < groups; ++g) {
    const float own = quantize_group<V>(x + g * kGroup, out[g].row[row]);
    sum = sum + own;
    largest = largest > own ? largest : own;
  }
  const float least = arithmetic::kOutlier * sum, count = static_cast<float>(groups);
  if (!(largest * count > least)) return 0;
  size_t found = 0;
  for (size_t g = 0; g < groups; ++g) {
    const float* const own = x + g * kGroup;
    const uint32_t bits = V::largest_bits(V::load(own), V::load(own + 16));
    if (!(__builtin_bit_cast(float, bits) * count > least)) continue;
    outliers[found] = take_outlier<V>(own, bits, out[g].row[row]);
    outliers[found++].column += static_cast<uint32_t>(g * kGroup);
  }
  return found;
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
