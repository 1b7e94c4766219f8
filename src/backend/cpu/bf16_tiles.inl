// Products of definition BF16 by fused multiply-adds of floats.
#pragma once

#include "backend/cpu/g32_tiles.inl"

namespace skein::cpu {
namespace {

// As G32Tile; rows [row, row + kRows) of the records from x on.
template <class V, size_t kRows, size_t kBlocks>
void bf16_tile(const Bf16Multiply& a, const uint8_t* const* blocks, const Bf16Record* x, size_t row,
               Ahead& ahead, typename V::F* sums) {
  using F = typename V::F;
  F sum[kBlocks][kRows];
  repeat<kBlocks>([&](auto b) { repeat<kRows>([&](auto r) { sum[b][r] = V::splat(0.0F); }); });
  size_t at = 0;
  for (size_t g = 0; g < a.groups; ++g) {
    ahead.fetch();
    F even[kBlocks][kRows], odd[kBlocks][kRows];
    repeat<kBlocks>(
        [&](auto b) { repeat<kRows>([&](auto r) { even[b][r] = odd[b][r] = V::splat(0.0F); }); });
    for (size_t k = 0; k < arithmetic::kGroup; k += 2, at += 64) {
      F w0[kBlocks], w1[kBlocks];
      repeat<kBlocks>([&](auto b) {
        const auto pairs = V::load_bytes(blocks[b] + at);
        w0[b] = V::even_halves(pairs);
        w1[b] = V::odd_halves(pairs);
      });
      repeat<kRows>([&](auto r) {
        const F x0 = V::splat(x[g].x[row + r][k]), x1 = V::splat(x[g].x[row + r][k + 1]);
        repeat<kBlocks>([&](auto b) {
          even[b][r] = V::fma(x0, w0[b], even[b][r]);
          odd[b][r] = V::fma(x1, w1[b], odd[b][r]);
        });
      });
    }
    repeat<kBlocks>([&](auto b) {
      repeat<kRows>([&](auto r) { sum[b][r] = V::add(sum[b][r], V::add(even[b][r], odd[b][r])); });
    });
  }
  repeat<kBlocks>([&](auto b) { repeat<kRows>([&](auto r) { sums[b * kRows + r] = sum[b][r]; }); });
}

template <class V>
void add_residuals(const ResidualMultiply& a) {
  using F = typename V::F;
  for (size_t n = 0; n < a.outputs; n += kBlockRows) {
    const uint8_t* const block = a.weights + n / kBlockRows * a.block_stride;
    F sum = V::splat(0.0F);
    for (size_t i = 0; i < a.count; ++i) {
      const uint8_t* const weights = block + a.residuals[i].group * kBf16BlockBytes;
      F even = V::splat(0.0F), odd = even;
      for (size_t k = 0; k < arithmetic::kGroup; k += 2) {
        const auto pairs = V::load_bytes(weights + 32 * k);
        even = V::fma(V::splat(a.residuals[i].x[k]), V::even_halves(pairs), even);
        odd = V::fma(V::splat(a.residuals[i].x[k + 1]), V::odd_halves(pairs), odd);
      }
      sum = V::add(sum, V::add(even, odd));
    }
    const size_t lanes = a.outputs - n < kBlockRows ? a.outputs - n : kBlockRows;
    store_lanes<V>(a.out + n, V::add(load_lanes<V>(a.out + n, lanes), sum), lanes);
  }
}

}  // namespace
}  // namespace skein::cpu
