// Bodies of linear_kernels.h over a Dot (dot_scalar.h); arithmetic.h has the definitions.
#pragma once

#include "backend/cpu/activations.inl"
#include "backend/cpu/bf16_panels.inl"
#include "backend/cpu/bf16_tiles.inl"
#include "backend/cpu/g32_outliers.inl"
#include "backend/cpu/g32_panels.inl"
#include "backend/cpu/g32_tiles.inl"
#include "backend/cpu/outputs.inl"

namespace skein::cpu {
namespace {

// Which of the tile functions.
template <class V, Codes kCodes, bool kHalves, bool kMinimum>
struct G32Few {
  static constexpr size_t kBlocks = V::kBlocks;
  template <size_t kRows, size_t kBlocks>
  static void run(const G32Multiply& a, const uint8_t* const* blocks, size_t row, Ahead& ahead,
                  typename V::F* sums) {
    const QuantizedRecord* const records = a.x + row / kTileRows * a.groups;
    G32Tile<V, kCodes, kHalves, kMinimum, kRows, kBlocks>::run(
        a, blocks, records->row + row % kTileRows, ahead, sums);
  }
};
template <class V>
struct Bf16Few {
  static constexpr size_t kBlocks = V::kBf16Blocks;
  template <size_t kRows, size_t kBlocks>
  static void run(const Bf16Multiply& a, const uint8_t* const* blocks, size_t row, Ahead& ahead,
                  typename V::F* sums) {
    bf16_tile<V, kRows, kBlocks>(a, blocks, a.x + row / kTileRows * a.groups, row % kTileRows,
                                 ahead, sums);
  }
};

// Rows [row, row + kRows) with `count` of kBlocks row blocks from `block` on; those past the count
// repeat the first, and rows past the last are what the tile's memory holds: neither is stored.
template <class V, class Tile, size_t kRows, size_t kBlocks, class Multiply>
void multiply_tile(const Multiply& a, size_t block, size_t count, size_t row, Ahead& ahead) {
  const uint8_t* blocks[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) {
    blocks[b] = a.weights + (block + (b < count ? b : 0)) * a.block_stride;
  }
  typename V::F sums[kBlocks * kRows];
  Tile::template run<kRows, kBlocks>(a, blocks, row, ahead, sums);
  for (size_t b = 0; b < count; ++b) {
    for (size_t r = 0; r < kRows && row + r < a.rows; ++r) {
      store_sum<V>(a, block + b, row + r, sums[b * kRows + r]);
    }
  }
}

// Row blocks outermost: the weights of a few stay in the cache while the rows come by. A single row
// wants more blocks at once, because it has fewer sums to keep the arithmetic units busy.
template <class V, class Tile, class Multiply>
void multiply_tiles(const Multiply& a) {
  const size_t blocks = blocks_of(a);
  if (a.rows == 1) {
    constexpr size_t kBlocks = V::kBlocksOfOneRow;
    for (size_t block = 0; block < blocks; block += kBlocks) {
      const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
      Ahead ahead = ahead_of(a, block + count, kBlocks, a.groups);
      multiply_tile<V, Tile, 1, kBlocks>(a, block, count, 0, ahead);
    }
    return;
  }
  constexpr size_t kBlocks = Tile::kBlocks, kRows = V::kMaxRows;
  const size_t passes = (a.rows + kRows - 1) / kRows;
  for (size_t block = 0; block < blocks; block += kBlocks) {
    const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
    Ahead ahead = ahead_of(a, block + count, kBlocks, passes * a.groups);
    size_t row = 0;
    for (; row + kRows / 2 < a.rows; row += kRows) {
      multiply_tile<V, Tile, kRows, kBlocks>(a, block, count, row, ahead);
    }
    if constexpr (kRows > 1) {
      if (row < a.rows) multiply_tile<V, Tile, kRows / 2, kBlocks>(a, block, count, row, ahead);
    }
  }
}

template <class V, Codes kCodes, bool kHalves, bool kMinimum>
void multiply_g32(const G32Multiply& a) {
  if constexpr (V::kPanelRows > 0) {
    if (a.rows >= a.panel_rows) {
      return multiply_panels<V, G32Panels<V, kCodes, kHalves, kMinimum>>(a);
    }
  }
  multiply_tiles<V, G32Few<V, kCodes, kHalves, kMinimum>>(a);
}

template <class V>
void multiply_bf16(const Bf16Multiply& a) {
  if constexpr (V::kPanelRows > 0) {
    if (a.rows >= V::kPanelRows) return multiply_panels<V, Bf16Panels<V>>(a);
  }
  multiply_tiles<V, Bf16Few<V>>(a);
}

template <class V>
constexpr LinearKernels make_linear_kernels() {
  return {
      .panel_rows = V::kPanelRows,
      .quantize = quantize_row<V>,
      .round = round_row<V>,
      .nibbles = multiply_g32<V, Codes::kNibbles, false, false>,
      .nibbles_minimum = multiply_g32<V, Codes::kNibbles, false, true>,
      .table = multiply_g32<V, Codes::kTable, false, false>,
      .fives = multiply_g32<V, Codes::kFives, false, false>,
      .fives_minimum = multiply_g32<V, Codes::kFives, false, true>,
      .bytes = multiply_g32<V, Codes::kBytes, false, false>,
      .bytes_minimum = multiply_g32<V, Codes::kBytes, false, true>,
      .twos_halves_minimum = multiply_g32<V, Codes::kTwos, true, true>,
      .nibbles_halves = multiply_g32<V, Codes::kNibbles, true, false>,
      .sixes_halves = multiply_g32<V, Codes::kSixes, true, false>,
      .add_outlier = add_outlier<V>,
      .bf16 = multiply_bf16<V>,
      .find_residuals = find_residuals<V>,
      .add_residuals = add_residuals<V>,
  };
}

}  // namespace
}  // namespace skein::cpu
