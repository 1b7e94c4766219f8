// Products of type BF16 by TDPBF16PS. A group of columns of a row block is one tile as it lies in
// memory, and activations are kept in that form: the records of a tile of rows are, in the first
// half of their memory, Bf16Halves. Few rows go through tiles as well: a product's time follows its
// rows.
#pragma once

#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/dot_avx512.h"

namespace skein::cpu {
namespace {

struct alignas(64) Bf16Halves {
  uint16_t bits[kTileRows][arithmetic::kGroup];
};
static_assert(2 * sizeof(Bf16Halves) == sizeof(Bf16Record));

inline const Bf16Halves* halves_of(const Bf16Multiply& a, size_t row) {
  return reinterpret_cast<const Bf16Halves*>(a.x + row / kTileRows * a.groups);
}

// LinearKernels::round.
inline void round_to_halves(const float* x, size_t inputs, size_t row, Bf16Record* out) {
  using V = DotAvx512;
  auto* halves = reinterpret_cast<Bf16Halves*>(out);
  for (size_t k = 0; k < inputs; k += arithmetic::kGroup, ++halves) {
    for (size_t i = 0; i < arithmetic::kGroup; i += 16) {
      const size_t at = k + i, left = at < inputs ? inputs - at : 0;
      const V::F in = V::load_first(x + (left > 0 ? at : 0), left < 16 ? left : 16);
      const __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(V::round_bf16(in)), 16);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(halves->bits[row] + i),
                          _mm512_cvtepi32_epi16(bits));
    }
  }
}

// A product takes about three times as long to finish as to start: four are under way at a time,
// with two tiles of rows and two row blocks, or one tile and four blocks.
inline constexpr size_t kBlocksTogetherBf16 = 4;

// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights. 0, 1 and 4 have `first` rows, 2, 3
// and 5 `second`.
inline TileShapes bf16_shapes(size_t first, size_t second) {
  TileShapes shapes;
  for (size_t tile = 0; tile < 6; ++tile) {
    const bool is_first = tile < 2 || tile == 4;
    shapes.set(tile, is_first ? first : second, kTileStride);
  }
  shapes.set(6, arithmetic::kGroup / 2, kTileStride);
  shapes.set(7, arithmetic::kGroup / 2, kTileStride);
  return shapes;
}

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void store_sums(TileSums* sums) {
  _tile_stored(0, sums[0].sum, kTileStride);
  _tile_stored(1, sums[1].sum, kTileStride);
  _tile_stored(2, sums[2].sum, kTileStride);
  _tile_stored(3, sums[3].sum, kTileStride);
}

// sums: the first tile with both blocks, then the second.
inline void bf16_two_by_two(size_t groups, const Bf16Halves* x, const Bf16Halves* y,
                            const uint8_t* const* blocks, TileSums* sums) {
  const uint8_t *v = blocks[0], *w = blocks[1];
  zero_sums();
  for (size_t g = 0; g < groups; ++g, v += kBf16BlockBytes, w += kBf16BlockBytes) {
    _tile_loadd(4, x[g].bits, kTileStride);
    _tile_loadd(6, v, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, y[g].bits, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  store_sums(sums);
}

inline void bf16_one_by_four(size_t groups, const Bf16Halves* x, const uint8_t* const* blocks,
                             TileSums* sums) {
  const uint8_t *t = blocks[0], *u = blocks[1], *v = blocks[2], *w = blocks[3];
  zero_sums();
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * kBf16BlockBytes;
    _tile_loadd(4, x[g].bits, kTileStride);
    _tile_loadd(6, t + at, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, u + at, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, v + at, kTileStride);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, w + at, kTileStride);
    _tile_dpbf16ps(3, 4, 7);
  }
  store_sums(sums);
}

// Row blocks outermost: the weights of four stay in the cache while the rows come by.
inline void bf16_amx(const Bf16Multiply& a) {
  TilesInUse tiles;
  TileSums sums[4];
  size_t first_rows = 0, second_rows = 0;
  const auto configure = [&](size_t first, size_t second) {
    if (first == first_rows && second == second_rows) return;
    tiles.configure(bf16_shapes(first, second));
    first_rows = first;
    second_rows = second;
  };
  const size_t row_blocks = (a.outputs + kBlockRows - 1) / kBlockRows;
  for (size_t block = 0; block < row_blocks; block += kBlocksTogetherBf16) {
    const size_t left = row_blocks - block;
    const size_t count = left < kBlocksTogetherBf16 ? left : kBlocksTogetherBf16;
    const uint8_t* blocks[kBlocksTogetherBf16];  // those past the count repeat the first
    for (size_t b = 0; b < kBlocksTogetherBf16; ++b) {
      blocks[b] = a.weights + (block + (b < count ? b : 0)) * a.block_stride;
    }
    size_t row = 0;
    for (; row + kTileRows < a.rows; row += 2 * kTileRows) {
      const size_t beyond = a.rows - row - kTileRows;
      const size_t second = beyond < kTileRows ? beyond : kTileRows;
      configure(kTileRows, second);
      for (size_t b = 0; b < count; b += 2) {
        bf16_two_by_two(a.groups, halves_of(a, row), halves_of(a, row + kTileRows), blocks + b,
                        sums);
        for (size_t i = b; i < b + 2 && i < count; ++i) {
          store_sums(a, sums[i - b], block + i, row, kTileRows);
          store_sums(a, sums[2 + i - b], block + i, row + kTileRows, second);
        }
      }
    }
    if (row >= a.rows) continue;
    configure(a.rows - row, a.rows - row);
    bf16_one_by_four(a.groups, halves_of(a, row), blocks, sums);
    for (size_t b = 0; b < count; ++b) store_sums(a, sums[b], block + b, row, a.rows - row);
  }
}

}  // namespace
}  // namespace skein::cpu
