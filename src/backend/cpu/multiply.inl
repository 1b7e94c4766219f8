// Products of activation rows with a panel of weight rows.
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// kX rows of activations with kW rows of weights, kW a multiple of 4: the sums stay in registers
// over all of the inputs.
template <class V, size_t kX, size_t kW>
void multiply_tile(const Multiply& a, size_t row, size_t weight_row) {
  using F = typename V::F;
  const float* const weights = a.weights + weight_row * a.weight_stride;
  F sums[kX][kW];
  for (auto& row_sums : sums) {
    for (F& sum : row_sums) sum = V::splat(0.0F);
  }
  const auto step = [&](size_t k, size_t lanes) __attribute__((always_inline)) {
    F w[kW];
    for (size_t n = 0; n < kW; ++n) w[n] = V::load(weights + n * a.weight_stride + k);
    for (size_t i = 0; i < kX; ++i) {
      const F x = load_lanes<V>(a.x[row + i] + k, lanes);
      for (size_t n = 0; n < kW; ++n) sums[i][n] = V::fma(x, w[n], sums[i][n]);
    }
  };
  const size_t whole = a.inputs / 16 * 16;
  for (size_t k = 0; k < whole; k += 16) step(k, 16);
  if (whole < a.inputs) step(whole, a.inputs - whole);

  const size_t left = a.weight_rows - weight_row, valid = left < kW ? left : kW;
  for (size_t i = 0; i < kX; ++i) {
    float products[kW];
    for (size_t n = 0; n < kW; n += 4) V::sum4(&sums[i][n], products + n);
    float* const out = a.out[row + i] + a.first_output + weight_row;
    for (size_t n = 0; n < valid; ++n) {
      out[n] = a.bias == nullptr ? products[n] : products[n] + a.bias[weight_row + n];
    }
  }
}

template <class V, size_t kX, size_t kW>
void multiply_rows(const Multiply& a, size_t row) {
  for (size_t n = 0; n < a.weight_rows; n += kW) multiply_tile<V, kX, kW>(a, row, n);
}

template <class V>
void multiply(const Multiply& a) {
  size_t row = 0;
  if constexpr (V::kTileRows == 4) {
    for (; row + 4 <= a.count; row += 4) multiply_rows<V, 4, 4>(a, row);
    switch (a.count - row) {
      case 3:
        return multiply_rows<V, 3, 4>(a, row);
      case 2:
        return multiply_rows<V, 2, 8>(a, row);
      case 1:
        return multiply_rows<V, 1, 8>(a, row);
      default:
        return;
    }
  }
  for (; row < a.count; ++row) multiply_rows<V, 1, 4>(a, row);
}

}  // namespace
}  // namespace skein::cpu
