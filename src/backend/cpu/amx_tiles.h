// The AMX tiles of this thread and the way from one to rows of results.
//
// Compilers know neither what a tile load reads nor what a configuration is: memory that is
// written in the same function is handed over by memory_is_written().
#pragma once

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/vec_avx512.h"

namespace skein::cpu {
namespace {

inline constexpr long kTileStride = 64;  // bytes from a row of a tile to the next, in our buffers

// A configuration of palette 1.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};

  constexpr void set(size_t tile, size_t tile_rows, size_t row_bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// Tiles in use, released at the end: what a thread leaves configured is saved with each switch.
class TilesInUse {
 public:
  TilesInUse() = default;
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

  // Not _tile_loadconfig(): that of gcc 12 says it reads 8 bytes, and loses stores to the others.
  void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
};

inline void memory_is_written() {
  asm volatile("" : : : "memory");
}

// One result of 16 rows by a row block.
struct alignas(64) TileSums {
  float sum[kTileRows][kBlockRows];
};

// Rows [row, row + rows) with row block `block`, plus the bias.
template <class Record>
void store_sums(const PackedMultiply<Record>& a, const TileSums& sums, size_t block, size_t row,
                size_t rows) {
  using V = VecAvx512;
  const size_t n = block * kBlockRows;
  const size_t lanes = a.outputs - n < kBlockRows ? a.outputs - n : kBlockRows;
  const V::F bias = a.bias == nullptr ? V::splat(0.0F) : V::load_first(a.bias + n, lanes);
  for (size_t r = 0; r < rows; ++r) {
    V::F sum = V::load(sums.sum[r]);
    if (a.bias != nullptr) sum = V::add(sum, bias);
    V::store_first(a.out[row + r] + a.first_output + n, sum, lanes);
  }
}

}  // namespace
}  // namespace skein::cpu
