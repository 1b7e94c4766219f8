// Bodies of linear_kernels.h over a Dot (dot_scalar.h); arithmetic.h has the definitions.
#pragma once

#include "backend/cpu/activations.inl"
#include "backend/cpu/bf16_tiles.inl"
#include "backend/cpu/g32_panels.inl"
#include "backend/cpu/g32_tiles.inl"

namespace skein::cpu {
namespace {

template <class Record>
size_t blocks_of(const PackedMultiply<Record>& a) {
  return (a.outputs + kBlockRows - 1) / kBlockRows;
}

// The place of the sums of row block `block`, row `row`; and how many of its outputs there are.
template <class Record>
float* place_of(const PackedMultiply<Record>& a, size_t block, size_t row) {
  return a.out[row] + a.first_output + block * kBlockRows;
}
template <class Record>
size_t lanes_of(const PackedMultiply<Record>& a, size_t block) {
  const size_t left = a.outputs - block * kBlockRows;
  return left < kBlockRows ? left : kBlockRows;
}

template <class V, class Record>
void store_sum(const PackedMultiply<Record>& a, size_t block, size_t row, typename V::F sum) {
  const size_t lanes = lanes_of(a, block);
  if (a.bias != nullptr) sum = V::add(sum, load_lanes<V>(a.bias + block * kBlockRows, lanes));
  store_lanes<V>(place_of(a, block, row), sum, lanes);
}

// Which of the tile functions.
template <class V, Codes kCodes, bool kHalves, bool kMinimum>
struct G32Few {
  static constexpr size_t kBlocks = V::kBlocks;
  template <size_t kRows, size_t kBlocks>
  static void run(const G32Multiply& a, const uint8_t* const* blocks, size_t row,
                  typename V::F* sums) {
    const QuantizedRecord* const records = a.x + row / kTileRows * a.groups;
    G32Tile<V, kCodes, kHalves, kMinimum, kRows, kBlocks>::run(
        a, blocks, records->row + row % kTileRows, sums);
  }
};
template <class V>
struct Bf16Few {
  static constexpr size_t kBlocks = V::kBf16Blocks;
  template <size_t kRows, size_t kBlocks>
  static void run(const Bf16Multiply& a, const uint8_t* const* blocks, size_t row,
                  typename V::F* sums) {
    bf16_tile<V, kRows, kBlocks>(a, blocks, a.x + row / kTileRows * a.groups, row % kTileRows,
                                 sums);
  }
};

// Rows [row, row + kRows) with `count` of kBlocks row blocks from `block` on; those past the count
// repeat the first, and rows past the last are what the tile's memory holds: neither is stored.
template <class V, class Tile, size_t kRows, size_t kBlocks, class Multiply>
void multiply_tile(const Multiply& a, size_t block, size_t count, size_t row) {
  const uint8_t* blocks[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) {
    blocks[b] = a.weights + (block + (b < count ? b : 0)) * a.block_stride;
  }
  typename V::F sums[kBlocks * kRows];
  Tile::template run<kRows, kBlocks>(a, blocks, row, sums);
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
      multiply_tile<V, Tile, 1, kBlocks>(a, block, count, 0);
    }
    return;
  }
  constexpr size_t kBlocks = Tile::kBlocks, kRows = V::kMaxRows;
  for (size_t block = 0; block < blocks; block += kBlocks) {
    const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
    size_t row = 0;
    for (; row + kRows / 2 < a.rows; row += kRows) {
      multiply_tile<V, Tile, kRows, kBlocks>(a, block, count, row);
    }
    if constexpr (kRows > 1) {
      if (row < a.rows) multiply_tile<V, Tile, kRows / 2, kBlocks>(a, block, count, row);
    }
  }
}

// Adds kRows rows with the panel of kBlocks row blocks to what `out` holds, or to nothing if these
// are the first columns.
template <class V, class Panel, size_t kRows, size_t kBlocks>
void add_panel(const G32Multiply& a, const typename Panel::Cell* cells, size_t block, size_t row,
               size_t first, size_t end, Ahead& ahead) {
  typename V::F sums[kBlocks * kRows];
  const auto each = [&](auto fn) {
    for (size_t b = 0; b < kBlocks; ++b) {
      for (size_t r = 0; r < kRows; ++r) fn(sums[b * kRows + r], block + b, row + r);
    }
  };
  each([&](typename V::F& sum, size_t b, size_t r) {
    sum = first == 0 || r >= a.rows ? V::splat(0.0F)
                                    : load_lanes<V>(place_of(a, b, r), lanes_of(a, b));
  });
  const QuantizedRecord* const record = a.x + row / kTileRows * a.groups + first;
  Panel::template add<kRows, kBlocks>(cells, end - first, record->row + row % kTileRows, ahead,
                                      sums);
  each([&](typename V::F& sum, size_t b, size_t r) {
    if (r >= a.rows) return;
    if (end == a.groups) return store_sum<V>(a, b, r, sum);
    store_lanes<V>(place_of(a, b, r), sum, lanes_of(a, b));
  });
}

template <class V, class Panel, Codes kCodes, size_t kBlocks>
void multiply_panel(const G32Multiply& a, typename Panel::Cell* cells, size_t block) {
  constexpr size_t kRows = V::kMaxRows;
  const size_t steps = (a.groups + Panel::kMost - 1) / Panel::kMost;
  const size_t passes = (a.rows + kRows - 1) / kRows;
  const size_t lines = kBlocks * a.block_stride / 64, turns = passes * a.groups;
  Ahead ahead = {a.weights + (block + kBlocks) * a.block_stride, (lines + turns - 1) / turns * 64};
  for (size_t step = 0; step < steps; ++step) {
    const size_t first = a.groups * step / steps, end = a.groups * (step + 1) / steps;
    for (size_t b = 0; b < kBlocks; ++b) {
      Panel::template unpack<kCodes>(a, a.weights + (block + b) * a.block_stride, first,
                                     end - first, cells + b, kBlocks);
    }
    size_t row = 0;
    for (; row + kRows / 2 < a.rows; row += kRows) {
      add_panel<V, Panel, kRows, kBlocks>(a, cells, block, row, first, end, ahead);
    }
    if (row < a.rows) {
      add_panel<V, Panel, kRows / 2, kBlocks>(a, cells, block, row, first, end, ahead);
    }
  }
}

template <class V, Codes kCodes, bool kHalves, bool kMinimum>
void multiply_panels(const G32Multiply& a) {
  // With a minimum codes are as they are, whatever their bits.
  using Panel = G32Panel<V, kCodes == Codes::kNibbles && !kMinimum, kHalves, kMinimum>;
  typename Panel::Cell cells[3 * Panel::kMost];
  for (size_t block = 0, left = blocks_of(a); left > 0;) {
    // Twice two rather than three and one.
    const size_t count = left == 4 || left == 2 ? 2 : left < 3 ? left : 3;
    switch (count) {
      case 3:
        multiply_panel<V, Panel, kCodes, 3>(a, cells, block);
        break;
      case 2:
        multiply_panel<V, Panel, kCodes, 2>(a, cells, block);
        break;
      default:
        multiply_panel<V, Panel, kCodes, 1>(a, cells, block);
    }
    block += count;
    left -= count;
  }
}

template <class V, Codes kCodes, bool kHalves, bool kMinimum>
void multiply_g32(const G32Multiply& a) {
  if constexpr (V::kPanelRows > 0) {
    if (a.rows >= V::kPanelRows) return multiply_panels<V, kCodes, kHalves, kMinimum>(a);
  }
  multiply_tiles<V, G32Few<V, kCodes, kHalves, kMinimum>>(a);
}

template <class V>
void multiply_bf16(const Bf16Multiply& a) {
  multiply_tiles<V, Bf16Few<V>>(a);
}

template <class V>
constexpr LinearKernels make_linear_kernels() {
  return {
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
      .bf16 = multiply_bf16<V>,
      .find_rests = find_rests<V>,
      .add_rests = add_rests<V>,
  };
}

}  // namespace
}  // namespace skein::cpu
