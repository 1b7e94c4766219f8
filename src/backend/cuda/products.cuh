// Products of tiles on tensor cores. A block of threads is one warpgroup or several that multiply,
// and a warp of which one thread keeps a ring of copies under way (product_ring.cuh). Who includes
// it has kernels for the shapes that it names.
#pragma once

#include "backend/cuda/product_ring.cuh"

namespace skein::cuda {

// Products of a block of 64 inputs, with the first kTokens rows.
template <uint32_t kTokens, uint32_t kSums>
__device__ void add_block(uint32_t weights, uint32_t rows, float (&sums)[kSums]) {
  auto& first = reinterpret_cast<float(&)[kTokens / 2]>(sums);
#pragma unroll
  for (uint32_t step = 0; step < kSteps; ++step) {
    add_products<kTokens>(first, descriptor(weights) + step * 2, descriptor(rows) + step * 2);
  }
}

// One segment of weights that are as they are multiplied: a chain from +0. A stage is given back
// when the products after it are under way.
template <class S, uint32_t kTokens>
__device__ void sum_tiles(const ParamsOf<S>& p, const Ring& ring, Place& place,
                          float (&sums)[S::kTokens / 2]) {
  const uint32_t group = threadIdx.x / kWarpgroup;
  const bool tells = threadIdx.x % kWarp == 0;
  uint32_t before = UINT32_MAX;
#pragma unroll 1
  for (uint32_t i = 0; i < p.matrix.segment_blocks; i += S::kBlocks) {
    const uint32_t rows = ring.at(place.stage);
    const uint32_t weights = rows + S::kBlocks * (S::kTokens * kRowBytes + group * kTileBytes);
    wait(ring.full + place.stage * 8, place.parity);
    fence_products();
#pragma unroll
    for (uint32_t b = 0; b < S::kBlocks; ++b) {
      add_block<kTokens>(weights + b * kTileBytes, rows + b * S::kTokens * kRowBytes, sums);
    }
    commit_products();
    wait_products<1>();
    if (before != UINT32_MAX && tells) arrive(ring.empty + before * 8);
    before = place.stage;
    place.next(ring.count);
  }
  wait_products<0>();
  if (tells) arrive(ring.empty + before * 8);
}

// The same, of codes, whose numbers are made in registers. Two products are under way: while the
// registers of one are read those of the other are made.
template <class S>
__device__ void sum_strips(const ParamsOf<S>& p, const Ring& ring, Place& place,
                           float (&sums)[S::kTokens / 2]) {
  const StripFormat format(p.matrix.format);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t group = threadIdx.x / kWarpgroup, blocks = p.matrix.segment_blocks;
  uint32_t before = UINT32_MAX, numbers[2][4];
#pragma unroll 1
  for (uint32_t i = 0; i < blocks; i += S::kBlocks) {
    const uint32_t rows = ring.at(place.stage), count = min(S::kBlocks, blocks - i);
    const uint32_t strip = rows + S::kBlocks * (S::kTokens * kRowBytes + group * ring.tile_bytes) +
                           warp % kStripsOfTile * count * format.bytes;
    wait(ring.full + place.stage * 8, place.parity);
    const uint64_t first = descriptor(__shfl_sync(0xffffffffU, rows, 0));
    for_each_tile<S::kBlocks>(count, [&](uint32_t tile) {
      const typename S::Codes codes(format, strip + tile * format.bytes, lane);
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
        wait_products<1>();
        if (tile == 0 && step == 2 && before != UINT32_MAX && lane == 0) {
          arrive(ring.empty + before * 8);  // nothing of the stage before is under way
        }
        codes.make(format, step, numbers[step % 2]);
        fence_products();
        add_products_of_fragments<S::kTokens>(
            sums, numbers[step % 2], first + tile * (S::kTokens * kRowBytes / 16) + step * 2);
        commit_products();
      }
    });
    before = place.stage;
    place.next(ring.count);
  }
  wait_products<0>();
  if (lane == 0) arrive(ring.empty + before * 8);
}

template <class S>
__device__ void sum_segment(const ParamsOf<S>& p, const Ring& ring, uint32_t tokens, Place& place,
                            float (&sums)[S::kTokens / 2]) {
#pragma unroll
  for (uint32_t j = 0; j < S::kTokens / 2; ++j) sums[j] = 0;
  if constexpr (S::kHasCodes) {
    sum_strips<S>(p, ring, place, sums);
  } else {
    if constexpr (S::kParts) {
      if (tokens == S::kTokens / 4) return sum_tiles<S, S::kTokens / 4>(p, ring, place, sums);
      if (tokens == S::kTokens / 2) return sum_tiles<S, S::kTokens / 2>(p, ring, place, sums);
    }
    sum_tiles<S, S::kTokens>(p, ring, place, sums);
  }
}

// Where a thread's sums belong: outputs `row` and + 8, tokens from `token` on.
template <class S>
struct SumPlaces {
  uint32_t row, token;

  __device__ explicit SumPlaces(const Item& item) {
    const uint32_t group = item.row_tile * S::kGroups + threadIdx.x / kWarpgroup;
    row = group * kTileRows + threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4;
    token = item.token_tile * S::kTokens + threadIdx.x % 4 * 2;
  }
};

template <class S>
__device__ void write_planes(const ParamsOf<S>& p, const Item& item,
                             const float (&sums)[S::kTokens / 2]) {
  const SumPlaces<S> places(item);
#pragma unroll
  for (uint32_t j = 0; j < S::kTokens / 2; ++j) {
    const uint32_t output = places.row + j / 2 % 2 * 8, token = places.token + j / 4 * 8 + j % 2;
    if (token >= p.rows || output >= p.matrix.outputs) continue;
    p.sums[(size_t{item.segment} * p.rows + token) * p.matrix.outputs + output] = sums[j];
  }
}

// What is read for several tokens is on its way before the first of them is written.
template <class S>
__device__ void write_sums(const ParamsOf<S>& p, const Item& item,
                           const float (&sums)[S::kTokens / 2]) {
  if (p.sums != nullptr) return write_planes<S>(p, item, sums);
  const SumPlaces<S> places(item);
  const auto* const scales = reinterpret_cast<const float*>(item.blocks + p.matrix.block_bytes());
  const float* bias = p.bias;
  if (S::kExperts && bias != nullptr) bias += size_t{item.expert} * p.matrix.outputs;
  float own[2] = {}, plus[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t output = places.row + i * 8;
    if (output >= p.matrix.outputs) continue;
    own[i] = scales[output];
    if (bias != nullptr) plus[i] = bias[output];
  }
  constexpr uint32_t kEights = S::kTokens / 8, kAtOnce = kEights < 4 ? kEights : 4;
#pragma unroll
  for (uint32_t first = 0; first < kEights; first += kAtOnce) {
    float of_token[2 * kAtOnce];
    uint32_t to[2 * kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < 2 * kAtOnce; ++i) {
      const uint32_t token = places.token + (first + i / 2) * 8 + i % 2;
      of_token[i] = p.x_scales[token];
      to[i] = token < p.rows ? token : UINT32_MAX;
      if constexpr (S::kExperts) to[i] = p.routes[token];
    }
#pragma unroll
    for (uint32_t j = 0; j < 4 * kAtOnce; ++j) {
      const uint32_t output = places.row + j / 2 % 2 * 8, i = j / 4 * 2 + j % 2;
      if (to[i] == UINT32_MAX || output >= p.matrix.outputs) continue;
      const float value = sums[first * 4 + j] * own[j / 2 % 2] * of_token[i];
      p.out[to[i] * p.out_stride + output] = bias == nullptr ? value : value + plus[j / 2 % 2];
    }
  }
}

template <class S>
__device__ void multiply_items(const ParamsOf<S>& p, const Ring& ring) {
  Place place;
  for (uint32_t index = blockIdx.x; index < items_of<S>(p); index += gridDim.x) {
    Item item;
    if (!item_at<S>(p, index, item)) continue;
    float sums[S::kTokens / 2];
    sum_segment<S>(p, ring, item.tokens, place, sums);
    if constexpr (S::kAdds) {
      float total[S::kTokens / 2];
#pragma unroll
      for (uint32_t j = 0; j < S::kTokens / 2; ++j) total[j] = sums[j];
      for (uint32_t s = 1; s < p.matrix.segments; ++s) {
        sum_segment<S>(p, ring, item.tokens, place, sums);
#pragma unroll
        for (uint32_t j = 0; j < S::kTokens / 2; ++j) total[j] = total[j] + sums[j];
      }
      write_sums<S>(p, item, total);
    } else {
      if (S::kHasCodes && index + gridDim.x >= items_of<S>(p)) let_next_kernel_begin();
      write_sums<S>(p, item, sums);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreadsOfBlock, S::kShare)
    multiply_tiles(const __grid_constant__ ParamsOf<S> p) {
  extern __shared__ __align__(1024) std::byte shared[];
  const Ring ring = ring_of<S>(shared, p);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < ring.count; ++i) {
      init_barrier(ring.full + i * 8, 1);
      init_barrier(ring.empty + i * 8, S::kGroups * kWarpgroup / kWarp);
    }
    fence_barriers();
  }
  __syncthreads();
  // Where memory is not what binds, blocks of threads that come early are only in the way: they
  // begin when the last sums are written.
  if constexpr (!S::kHasCodes) let_next_kernel_begin();
  if (threadIdx.x < S::kGroups * kWarpgroup) {
    wait_for_kernel_before();
    multiply_items<S>(p, ring);
  } else if (threadIdx.x % kWarp == 0) {
    copy_items<S>(p, ring);
  }
}

template <class S>
cudaError_t set_shared_bytes() {
  return cudaFuncSetAttribute(multiply_tiles<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kProcessorBytes - kBlockOverhead);
}

// Pieces of work that a processor of the busiest has, of 64 outputs each.
template <class S>
uint32_t most_pieces(const ProductParams& params, uint32_t processors) {
  const uint32_t items = groups_of(params.matrix.row_blocks(), S::kGroups) * params.token_tiles *
                         (S::kAdds ? 1 : params.matrix.segments);
  const uint32_t at_once = processors * S::kShare;
  const uint32_t blocks =
      items <= at_once ? groups_of(items, processors) : groups_of(items, at_once) * S::kShare;
  return blocks * S::kGroups;
}

template <class S>
void launch(const ParamsOf<S>& params, uint32_t processors, cudaStream_t stream) {
  const uint32_t row_tiles = groups_of(params.matrix.outputs, S::kGroups * kTileRows);
  const uint32_t items = row_tiles * params.token_tiles * (S::kAdds ? 1 : params.matrix.segments);
  const uint32_t blocks = std::min(items, processors * S::kShare);
  const uint32_t tile_bytes = S::kHasCodes ? params.matrix.format.tile_bytes() : kTileBytes;
  // Where few rows' weights all come at once it does not matter which processors they come to.
  const uint32_t stages =
      groups_of(S::kAdds ? params.matrix.input_blocks() : params.matrix.segment_blocks, S::kBlocks);
  const bool come_at_once = S::kTokens <= 16 && stages <= S::stages(tile_bytes);
  const uint32_t spread = come_at_once ? 0 : spread_bytes(blocks, S::kShare, processors);
  const uint32_t shared_bytes = std::max(S::shared_bytes(tile_bytes), spread);
  // What experts multiply is not known before.
  if (S::kExperts) {
    multiply_tiles<S><<<blocks, S::kThreadsOfBlock, shared_bytes, stream>>>(params);
  } else {
    launch_overlapped(multiply_tiles<S>, blocks, S::kThreadsOfBlock, shared_bytes, stream, params);
  }
}

// By the shape that leaves the busiest processor the least, the first of them among equals.
template <class First, class... Others>
void launch_best(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  uint32_t least = most_pieces<First>(params, processors);
  auto best = launch<First>;
  const auto compare = [&](uint32_t pieces, auto* other) {
    if (pieces >= least) return;
    least = pieces;
    best = other;
  };
  (compare(most_pieces<Others>(params, processors), launch<Others>), ...);
  best(params, processors, stream);
}

// What PackedProducts::set_up does, of shapes.
template <class... S>
cudaError_t set_up_shapes() {
  cudaError_t error = cudaSuccess;
  const auto take = [&](cudaError_t own) {
    if (error == cudaSuccess) error = own;
  };
  (take(set_shared_bytes<S>()), ...);
  return error;
}

}  // namespace skein::cuda
