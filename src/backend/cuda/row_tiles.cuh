// How rows become tiles of float16 numbers: what is added to them, their norm or activation, the
// power of two and the rounding.
#pragma once

#include "backend/cuda/activated.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/segment_sums.cuh"
#include "backend/cuda/span_merge.cuh"

namespace skein::cuda {

// kNormOfSums: what is added to the rows has segments to be added up. kMerge: the rows are yet to
// be made, of spans of attention.
enum class Change : uint8_t { kNone, kNorm, kNormOfSums, kActivation, kMerge };

template <Change kChange>
inline constexpr bool kNorms = kChange == Change::kNorm || kChange == Change::kNormOfSums;

struct TileParams {
  DeviceRows x;
  DeviceRows delta;
  SegmentSums delta_sums;
  float delta_scale;
  MergeParams merge;
  DeviceNorm norm;
  ActivationParams activation;
  uint32_t width;
  const uint32_t* routes;  // nullptr: row i is row i
  uint32_t rows_of_route;  // routes of a row of x
  std::byte* tiles;
  float* scales;
  uint32_t tile_rows;     // of `tiles`
  uint32_t input_blocks;  // with the zeros at the end
};

// The largest of a block's threads, for all of them.
template <uint32_t kBlock>
__device__ inline uint32_t largest_of(uint32_t x) {
  __shared__ uint32_t of_warp[kBlock / kWarp];
  x = __reduce_max_sync(0xffffffffU, x);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warp[threadIdx.x % (kBlock / kWarp)];
  return __reduce_max_sync(0xffffffffU, x);
}

// Four numbers of a row, from k on, as they are before any norm, and what was added to them.
struct Loaded {
  Outputs<4> x{}, added{};
};

template <Change kChange>
__device__ inline Loaded load_numbers(const TileParams& p, uint32_t row, uint32_t k) {
  const float* const x = row_at(p.x, row) + k;
  Loaded out;
  if constexpr (kChange == Change::kMerge) {
    out.x = merge_query(p.merge, row, k / p.merge.head_dim, k % p.merge.head_dim);
    return out;
  }
  out.x = load_outputs<4>(x);
  if constexpr (kChange == Change::kActivation) {
    Outputs<4> up{};
    if (p.x.width > p.width) up = load_outputs<4>(x + p.width);
    activate(p.activation, out.x.at, up.at);
    return out;
  }
  if (p.delta.data == nullptr) return out;
  if constexpr (kChange == Change::kNormOfSums) {
    out.added = product_at<4>(p.delta_sums, row, k);
  } else {
    out.added = load_outputs<4>(row_at(p.delta, row) + k);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    out.x.at[i] = arithmetic::fma(p.delta_scale, out.added.at[i], out.x.at[i]);
  }
  return out;
}

__device__ inline void store_four(float* to, const Outputs<4>& x) {
  *reinterpret_cast<float4*>(to) = {x.at[0], x.at[1], x.at[2], x.at[3]};
}

// What was added or merged on the way is written where it belongs.
template <Change kChange>
__device__ inline void store_numbers(const TileParams& p, uint32_t row, uint32_t k,
                                     const Loaded& loaded) {
  if constexpr (kChange == Change::kActivation) return;
  if (kChange != Change::kMerge && p.delta.data == nullptr) return;
  store_four(row_at(p.x, row) + k, loaded.x);
  if constexpr (kChange == Change::kNormOfSums) {
    store_four(row_at(p.delta, row) + k, loaded.added);
  }
}

// All of a thread's numbers are under way before the first is written.
template <Change kChange, uint32_t kVectors, class First>
__device__ inline void load_all(const TileParams& p, uint32_t row, const First& first_of,
                                Outputs<4> (&x)[kVectors]) {
  Loaded loaded[kVectors];
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) {
    if (first_of(v) < p.width) loaded[v] = load_numbers<kChange>(p, row, first_of(v));
  }
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) {
    if (first_of(v) < p.width) store_numbers<kChange>(p, row, first_of(v), loaded[v]);
    x[v] = loaded[v].x;
  }
}

// The largest magnitude of a thread's numbers; those beyond the row are zeros.
template <uint32_t kVectors>
__device__ inline uint32_t largest_of_thread(const Outputs<4> (&x)[kVectors]) {
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) {
    for (const float y : x[v].at) {
      largest = max(largest, arithmetic::bits_of_float(y) & 0x7fffffffU);
    }
  }
  return largest;
}

// Numbers k .. k + 3 of a row, rounded.
__device__ inline void put_in_tiles(const TileParams& p, uint32_t row, uint32_t k,
                                    const Outputs<4>& x, float scale) {
  if (k >= p.input_blocks * kTileInputs) return;
  std::byte* const block = p.tiles + size_t{k / kTileInputs} * p.tile_rows * (2 * kTileInputs);
  uint32_t halves[4] = {};
  for (uint32_t i = 0; i < 4 && k < p.width; ++i) halves[i] = f16_of(x.at[i] * scale);
  *reinterpret_cast<uint2*>(block + offset_in_tile(row, k % kTileInputs)) = {
      halves[1] << 16 | halves[0], halves[3] << 16 | halves[2]};
}

// The power of two of a row whose largest magnitude that is, and its number where rows begin.
__device__ inline float scale_of_row(const TileParams& p, uint32_t row, uint32_t largest) {
  const int32_t exponent = arithmetic::f16_exponent(largest);
  if (blockIdx.x == 0 && threadIdx.x == 0) p.scales[row] = arithmetic::power_of_two(-exponent);
  return arithmetic::power_of_two(exponent);
}

}  // namespace skein::cuda
