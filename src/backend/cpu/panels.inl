// Products with packed weights for many rows: a few row blocks, some columns of them at a time, are
// unpacked into a panel that stays in the first-level cache while all rows come by.
//
// Panels says how: a Cell is a group of 32 columns of a row block, kMost groups are a panel;
// unpack() makes the cells of a row block, `step` apart, add() adds the products of kRows rows of
// a tile with kBlocks cells a group.
#pragma once

#include "backend/cpu/ahead.inl"
#include "backend/cpu/outputs.inl"

namespace skein::cpu {
namespace {

// Adds kRows rows with the panel of kBlocks row blocks to what `out` holds, or to nothing if these
// are the first columns.
template <class V, class Panels, size_t kRows, size_t kBlocks, class Multiply>
void add_panel(const Multiply& a, const typename Panels::Cell* cells, size_t block, size_t row,
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
  Panels::template add<kRows, kBlocks>(cells, end - first, a.x + row / kTileRows * a.groups + first,
                                       row % kTileRows, ahead, sums);
  each([&](typename V::F& sum, size_t b, size_t r) {
    if (r >= a.rows) return;
    if (end == a.groups) return store_sum<V>(a, b, r, sum);
    store_lanes<V>(place_of(a, b, r), sum, lanes_of(a, b));
  });
}

template <class V, class Panels, size_t kBlocks, class Multiply>
void multiply_panel(const Multiply& a, typename Panels::Cell* cells, size_t block) {
  constexpr size_t kRows = V::kMaxRows;
  const size_t steps = (a.groups + Panels::kMost - 1) / Panels::kMost;
  const size_t passes = (a.rows + kRows - 1) / kRows;
  Ahead ahead = ahead_of(a, block + kBlocks, kBlocks, passes * a.groups);
  for (size_t step = 0; step < steps; ++step) {
    const size_t first = a.groups * step / steps, end = a.groups * (step + 1) / steps;
    for (size_t b = 0; b < kBlocks; ++b) {
      Panels::unpack(a, a.weights + (block + b) * a.block_stride, first, end - first, cells + b,
                     kBlocks);
    }
    size_t row = 0;
    for (; row + kRows / 2 < a.rows; row += kRows) {
      add_panel<V, Panels, kRows, kBlocks>(a, cells, block, row, first, end, ahead);
    }
    if (row < a.rows) {
      add_panel<V, Panels, kRows / 2, kBlocks>(a, cells, block, row, first, end, ahead);
    }
  }
}

template <class V, class Panels, class Multiply>
void multiply_panels(const Multiply& a) {
  typename Panels::Cell cells[3 * Panels::kMost];
  for (size_t block = 0, left = blocks_of(a); left > 0;) {
    // Twice two rather than three and one.
    const size_t count = left == 4 || left == 2 ? 2 : left < 3 ? left : 3;
    switch (count) {
      case 3:
        multiply_panel<V, Panels, 3>(a, cells, block);
        break;
      case 2:
        multiply_panel<V, Panels, 2>(a, cells, block);
        break;
      default:
        multiply_panel<V, Panels, 1>(a, cells, block);
    }
    block += count;
    left -= count;
  }
}

}  // namespace
}  // namespace skein::cpu
