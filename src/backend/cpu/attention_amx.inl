// Attention over one span of a bfloat16 cache by TDPBF16PS. Keys and values are tiles as they lie
// in memory (KvLayer in backend.h); queries, and later their weights, are packed into tiles.
//
// A weight of 0 times a value that is no number is no number: values go through tiles in blocks
// that every row sees whole. The blocks at either edge of what rows see are AVX-512's, row by row.
#pragma once

#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/attention.inl"

namespace skein::cpu {
namespace {

inline constexpr size_t kMostTileDims = 512;  // for memory on the stack
inline constexpr size_t kSpanBlocks = arithmetic::kSpanTokens / kKernelBlockTokens;
inline constexpr size_t kTileBytes = kTileRows * kTileStride;
inline constexpr long kScoreStride = arithmetic::kSpanTokens * sizeof(float);

// 32 dimensions of up to 16 queries, or their weights for 32 tokens.
struct alignas(64) QueryTile {
  uint16_t bits[kTileRows][arithmetic::kGroup];
};

// To configure tiles, pack queries and fetch sums takes about as long as vectors take for four
// queries with one block, by estimate. From there on tiles are for any number of queries, one
// included: of 64 dimensions and a block, which is 128 lines of memory, it needs 8 products and 10
// loads of tiles, where vectors take 1300 instructions.
inline constexpr size_t kLeastQueryBlocks = 4;

inline bool fits_tiles(const AttendSpan& a) {
  const Blocks seen = seen_blocks(a);
  return a.head_dim % 16 == 0 && a.head_dim <= kMostTileDims && seen.first < seen.end &&
         a.rows * a.shared * (seen.end - seen.first) >= kLeastQueryBlocks;
}

// `count` queries of the only row.
inline AttendSpan queries_of(const AttendSpan& a, size_t first, size_t count) {
  AttendSpan part = a;
  part.shared = count;
  part.queries += first * a.head_dim;
  part.scores += first * arithmetic::kSpanTokens;
  part.partials += first * (a.head_dim + 2);
  return part;
}

// Tiles 0 to 3 are sums, 4 queries or weights, 6 keys or values. 5 and 7 are 4 and 6 for the last
// 16 dimensions of keys where these are no multiple of 32: what lies beyond is no key.
inline TileShapes attention_shapes(size_t queries) {
  TileShapes shapes;
  for (size_t tile = 0; tile < 5; ++tile) shapes.set(tile, queries, kTileStride);
  shapes.set(5, queries, kTileStride / 2);
  shapes.set(6, arithmetic::kGroup / 2, kTileStride);
  shapes.set(7, arithmetic::kGroup / 4, kTileStride);
  return shapes;
}

// 32 floats that are bfloat16.
inline void pack_bf16(VecAvx512::F first, VecAvx512::F second, uint16_t* out) {
  alignas(64) static constexpr uint16_t kUpperHalves[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_store_si512(
      out, _mm512_permutex2var_epi16(_mm512_castps_si512(first), _mm512_load_si512(kUpperHalves),
                                     _mm512_castps_si512(second)));
}

// [head_dim / 32, rounded up]
inline void pack_queries(const AttendSpan& a, QueryTile* out) {
  using V = VecAvx512;
  for (size_t query = 0; query < a.rows * a.shared; ++query) {
    const float* const q = a.queries + query * a.head_dim;
    for (size_t d = 0; d < a.head_dim; d += arithmetic::kGroup) {
      const bool whole = d + arithmetic::kGroup <= a.head_dim;
      pack_bf16(V::load(q + d), whole ? V::load(q + d + 16) : V::splat(0.0F),
                out[d / arithmetic::kGroup].bits[query]);
    }
  }
}

// [block]
inline void pack_weights(const AttendSpan& a, Blocks blocks, QueryTile* out) {
  using V = VecAvx512;
  for (size_t query = 0; query < a.rows * a.shared; ++query) {
    const float* const weights = a.scores + query * arithmetic::kSpanTokens;
    for (size_t block = blocks.first; block < blocks.end; ++block) {
      const float* const at = weights + block * kKernelBlockTokens;
      pack_bf16(V::load(at), V::load(at + 16), out[block].bits[query]);
    }
  }
}

// What a tile of keys or values is to be followed by, a tile at a time (HalfBf16 says why). A call
// of a function that does nothing but this looks useless to gcc, and goes.
__attribute__((always_inline)) inline void fetch_tile(const std::byte* at) {
  SKEIN_WRITE_OUT for (size_t i = 0; i < kTileBytes; i += 64) __builtin_prefetch(at + i);
}

// Scores of all queries with the n-th block that is read, and with the one after it where there is
// one, neither scaled nor capped. A product takes about three times as long to finish as to start:
// the two halves of two blocks are four sums under way.
inline void score_blocks(const AttendSpan& a, const QueryTile* queries, Blocks seen, size_t n) {
  const size_t half_bytes = a.head_dim / 2 * kTileStride, block = seen.first + n;
  const bool two = block + 1 < seen.end;
  const std::byte *k0 = a.blocks[block], *k1 = k0 + half_bytes;
  const std::byte *k2 = two ? a.blocks[block + 1] : k0, *k3 = k2 + half_bytes;
  const size_t after = n + (two ? 2 : 1);
  const std::byte* const next0 = nth_half(a, seen, after, 2 * half_bytes);
  const std::byte* const next2 = nth_half(a, seen, after + 1, 2 * half_bytes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  size_t at = 0;  // of the group of dimensions, in bytes
  for (; at + kTileBytes <= half_bytes; at += kTileBytes, ++queries) {
    _tile_loadd(4, queries->bits, kTileStride);
    _tile_loadd(6, k0 + at, kTileStride);
    fetch_tile(next0 + at);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(6, k1 + at, kTileStride);
    fetch_tile(next0 + half_bytes + at);
    _tile_dpbf16ps(1, 4, 6);
    if (!two) continue;
    _tile_loadd(6, k2 + at, kTileStride);
    fetch_tile(next2 + at);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(6, k3 + at, kTileStride);
    fetch_tile(next2 + half_bytes + at);
    _tile_dpbf16ps(3, 4, 6);
  }
  if (at < half_bytes) {
    _tile_loadd(5, queries->bits, kTileStride);
    _tile_loadd(7, k0 + at, kTileStride);
    _tile_dpbf16ps(0, 5, 7);
    _tile_loadd(7, k1 + at, kTileStride);
    _tile_dpbf16ps(1, 5, 7);
  }
  if (at < half_bytes && two) {
    _tile_loadd(7, k2 + at, kTileStride);
    _tile_dpbf16ps(2, 5, 7);
    _tile_loadd(7, k3 + at, kTileStride);
    _tile_dpbf16ps(3, 5, 7);
  }
  float* const scores = a.scores + block * kKernelBlockTokens;
  _tile_stored(0, scores, kScoreStride);
  _tile_stored(1, scores + 16, kScoreStride);
  if (!two) return;
  _tile_stored(2, scores + 32, kScoreStride);
  _tile_stored(3, scores + 48, kScoreStride);
}

// Adds blocks that every row sees whole to dimensions [d, d + 16 * count) of all queries; 16 at a
// time are a tile of sums.
inline void add_dimensions(const AttendSpan& a, Blocks seen, Blocks blocks,
                           const QueryTile* weights, size_t d, size_t count) {
  const long stride = static_cast<long>((a.head_dim + 2) * sizeof(float));
  float* const out = a.partials + d;
  const size_t half_bytes = a.head_dim * kTileStride, values_at = half_bytes + d * kTileStride;
  _tile_loadd(0, out, stride);
  if (count > 1) _tile_loadd(1, out + 16, stride);
  if (count > 2) _tile_loadd(2, out + 32, stride);
  if (count > 3) _tile_loadd(3, out + 48, stride);
  for (size_t block = blocks.first; block < blocks.end; ++block) {
    const std::byte* const values = a.blocks[block] + values_at;
    const size_t after = seen.end + block + 1 - 2 * seen.first;
    const std::byte* const next = nth_half(a, seen, after, half_bytes) + d * kTileStride;
    _tile_loadd(4, weights[block].bits, kTileStride);
    _tile_loadd(6, values, kTileStride);
    fetch_tile(next);
    _tile_dpbf16ps(0, 4, 6);
    if (count < 2) continue;
    _tile_loadd(6, values + kTileBytes, kTileStride);
    fetch_tile(next + kTileBytes);
    _tile_dpbf16ps(1, 4, 6);
    if (count < 3) continue;
    _tile_loadd(6, values + 2 * kTileBytes, kTileStride);
    fetch_tile(next + 2 * kTileBytes);
    _tile_dpbf16ps(2, 4, 6);
    if (count < 4) continue;
    _tile_loadd(6, values + 3 * kTileBytes, kTileStride);
    fetch_tile(next + 3 * kTileBytes);
    _tile_dpbf16ps(3, 4, 6);
  }
  _tile_stored(0, out, stride);
  if (count > 1) _tile_stored(1, out + 16, stride);
  if (count > 2) _tile_stored(2, out + 32, stride);
  if (count > 3) _tile_stored(3, out + 48, stride);
}

// Those that every row sees whole; where there are none, no block at the start of `seen`.
inline Blocks whole_blocks(const AttendSpan& a, Blocks seen) {
  size_t begin = 0, end = arithmetic::kSpanTokens;
  for (size_t row = 0; row < a.rows; ++row) {
    begin = a.begin[row] > begin ? a.begin[row] : begin;
    end = a.end[row] < end ? a.end[row] : end;
  }
  const Blocks whole = {(begin + kKernelBlockTokens - 1) / kKernelBlockTokens,
                        end / kKernelBlockTokens};
  return whole.first < whole.end ? whole : Blocks{seen.first, seen.first};
}

// At most 16 queries.
inline void attend_tile(const AttendSpan& a) {
  using V = VecAvx512;
  using Half = HalfBf16<V>;
  const Blocks seen = seen_blocks(a), whole = whole_blocks(a, seen);
  TilesInUse tiles;
  tiles.configure(attention_shapes(a.rows * a.shared));
  QueryTile queries[kMostTileDims / arithmetic::kGroup], weights[kSpanBlocks];
  pack_queries(a, queries);
  memory_is_written();
  for (size_t n = 0; seen.first + n < seen.end; n += 2) score_blocks(a, queries, seen, n);
  weigh_all<V, Half, true>(a);
  add_blocks<V, AsStored<Half>>(a, seen, {seen.first, whole.first});
  pack_weights(a, whole, weights);
  memory_is_written();
  for (size_t d = 0; whole.first < whole.end && d < a.head_dim; d += 64) {
    const size_t left = (a.head_dim - d) / 16;
    add_dimensions(a, seen, whole, weights, d, left < 4 ? left : 4);
  }
  add_blocks<V, AsStored<Half>>(a, seen, {whole.end, seen.end});
}

}  // namespace
}  // namespace skein::cpu
