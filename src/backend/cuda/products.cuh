// Products of tiles on tensor cores. A block of threads is one or two warpgroups that multiply, and
// a warp of which one thread keeps a ring of copies under way. Who includes it has kernels for the
// bits of codes that it names.
#pragma once

#include <type_traits>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/make_tile.cuh"
#include "backend/cuda/product_params.h"
#include "backend/cuda/strips.cuh"

namespace skein::cuda {

inline constexpr uint32_t kRowBytes = kTileInputs * sizeof(uint16_t);
inline constexpr uint32_t kSteps = kTileInputs / arithmetic::kF16Group;  // of a block

// Of a block of codes, with two scales and minimums for every 32 inputs.
template <uint32_t kBits>
inline constexpr uint32_t kMostPackedBytes = kTileRows* kTileInputs* kBits / 8 + 2048;

// What a block of threads works on at once: 64 * kGroups outputs, kTokens rows, kBlocks * 64 inputs
// a stage of the ring, and how many such blocks of threads share a processor. kAdds: one goes
// through all segments and adds them up; else through one of them. kBits are those of a code; of
// less than 16 a warpgroup makes tiles of float16 numbers before it multiplies them.
template <uint32_t kBitsOf, uint32_t kTokensOf, uint32_t kGroupsOf, uint32_t kBlocksOf,
          uint32_t kShareOf, bool kAddsOf, bool kExpertsOf = false>
struct Shape {
  static constexpr uint32_t kBits = kBitsOf;
  static constexpr uint32_t kTokens = kTokensOf, kGroups = kGroupsOf, kBlocks = kBlocksOf,
                            kShare = kShareOf;
  static constexpr bool kAdds = kAddsOf, kExperts = kExpertsOf;
  static constexpr uint32_t kThreadsOfBlock = kGroups * kWarpgroup + kWarp;
  // Four blocks of inputs are those of strips (packed_tiles.h): a warp has the numbers of 16
  // outputs in registers. Experts make tiles of them, as of others.
  static constexpr bool kStrips = kBits == 4 && kBlocks == 4, kTakes = kStrips && !kExperts;
  static constexpr bool kMakes = kBits < 16 && !kTakes;
  static constexpr uint32_t kOwnTileBytes = kTakes ? kStripBytes : kTileBytes;
  // Tiles in the making: of the one before and of that before it not all may have been read.
  static constexpr uint32_t kMadeTiles = 3;
  static constexpr uint32_t kMadeBytes = kMakes ? kGroups * kMadeTiles * kTileBytes : 0;
  static constexpr uint32_t kProcessorBytes = 233472, kBlockOverhead = 1024;
  static constexpr uint32_t kTableBytes = kBits == 4 ? 1024 : 0;  // with what it takes to align
  static constexpr uint32_t kRoom =
      (kProcessorBytes / kShare - kBlockOverhead) / 1024 * 1024 - 1024 - kMadeBytes - kTableBytes;
  // Where the size of a stage is known, nothing is left for the next kernel to miss.
  static constexpr uint32_t kWholeStage = kBlocks * (kTokens * kRowBytes + kGroups * kOwnTileBytes);
  static constexpr uint32_t kMostStages =
      kMakes || kRoom / kWholeStage > 32 ? 32 : kRoom / kWholeStage;
  static constexpr uint32_t kRingBytes = kMakes ? kRoom : kMostStages * kWholeStage;
  static constexpr uint32_t kSharedBytes = kMadeBytes + kRingBytes + kMostStages * 16;

  // Of weights whose blocks have so many bytes. Rows come first, since they lie at a multiple of
  // 1024 bytes.
  __host__ __device__ static constexpr uint32_t stage_bytes(uint32_t tile_bytes) {
    const uint32_t bytes = kBlocks * (kTokens * kRowBytes + kGroups * tile_bytes);
    return (bytes + 1023) / 1024 * 1024;
  }
  __host__ __device__ static constexpr uint32_t stages(uint32_t tile_bytes) {
    const uint32_t count = kRingBytes / stage_bytes(tile_bytes);
    return count < kMostStages ? count : kMostStages;
  }
  static_assert(stages(kStrips ? kStripBytes : kMakes ? kMostPackedBytes<kBits> : kTileBytes) >= 2);
};

// Kernels begin the sooner the less they are given.
template <class S>
using ParamsOf = std::conditional_t<S::kExperts, ExpertParams, ProductParams>;

// One piece of work, the same for who copies and who multiplies.
struct Item {
  uint32_t row_tile, token_tile, segment;
  const std::byte* blocks;
  uint32_t expert;
};

template <class S>
__device__ uint32_t items_of(const ParamsOf<S>& p) {
  const uint32_t row_tiles = groups_of(p.matrix.outputs, S::kGroups * kTileRows);
  return row_tiles * p.token_tiles * (S::kAdds ? 1 : p.matrix.segments);
}

// Neighbours share weights where there are several tiles of rows. False: there is nothing to do.
template <class S>
__device__ bool item_at(const ParamsOf<S>& p, uint32_t index, Item& item) {
  const uint32_t segments = S::kAdds ? 1 : p.matrix.segments;
  item.segment = index % segments;
  item.token_tile = index / segments % p.token_tiles;
  item.row_tile = index / segments / p.token_tiles;
  item.blocks = p.matrix.blocks;
  if constexpr (S::kExperts) {
    item.expert = p.experts[item.token_tile];
    if (item.expert < p.table.first || item.expert - p.table.first >= p.table.count) return false;
    item.blocks = p.table.blocks[item.expert - p.table.first];
    if (item.blocks == nullptr) return false;  // of another format
  }
  return true;
}

// A ring's place and the parity of its round.
struct Place {
  uint32_t stage = 0, parity = 0;

  __device__ void next(uint32_t stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  uint32_t made, stages, full, empty;  // addresses
  uint32_t count, stage_bytes;
  uint32_t tile_bytes;  // of weights

  __device__ uint32_t at(uint32_t stage) const { return stages + stage * stage_bytes; }
};

template <class S>
__device__ Ring ring_of(const void* shared, const ParamsOf<S>& p) {
  const uint32_t tile_bytes = S::kMakes ? p.matrix.format.tile_bytes() : S::kOwnTileBytes;
  const uint32_t made = shared_address(shared), stages = made + S::kMadeBytes;
  const uint32_t full = stages + S::kRingBytes;
  return {made,
          stages,
          full,
          full + S::kMostStages * 8,
          S::stages(tile_bytes),
          S::stage_bytes(tile_bytes),
          tile_bytes};
}

// What one thread copies, stage after stage, in the order in which it is multiplied.
template <class S>
class Stages {
 public:
  __device__ explicit Stages(const ParamsOf<S>& p)
      : p_(p), of_item_(S::kAdds ? p.matrix.input_blocks() : p.matrix.segment_blocks) {
    find_item();
  }

  __device__ bool any() const { return index_ < items_of<S>(p_); }
  __device__ void next() {
    block_ += S::kBlocks;
    if (block_ < of_item_) return;
    block_ = 0;
    index_ += gridDim.x;
    find_item();
  }
  __device__ void copy_weights(uint32_t to, uint32_t full, uint32_t tile_bytes,
                               uint64_t policy) const {
    const uint32_t last = p_.matrix.row_blocks() - 1, blocks = p_.matrix.input_blocks();
    for (uint32_t g = 0; g < S::kGroups; ++g) {
      const size_t row_block = min(item_.row_tile * S::kGroups + g, last);
      copy_bulk(to + S::kBlocks * (S::kTokens * kRowBytes + g * tile_bytes),
                item_.blocks + (row_block * blocks + block()) * tile_bytes, S::kBlocks * tile_bytes,
                full, policy);
    }
  }
  __device__ void copy_rows(uint32_t to, uint32_t full, uint64_t policy) const {
    for (uint32_t b = 0; b < S::kBlocks; ++b) {
      const size_t first = size_t{block() + b} * p_.x_rows + item_.token_tile * S::kTokens;
      copy_bulk(to + b * S::kTokens * kRowBytes, p_.x + first * kRowBytes, S::kTokens * kRowBytes,
                full, policy);
    }
  }

 private:
  __device__ uint32_t block() const { return item_.segment * of_item_ + block_; }
  __device__ void find_item() {
    while (any() && !item_at<S>(p_, index_, item_)) index_ += gridDim.x;
  }

  const ParamsOf<S>& p_;
  const uint32_t of_item_;
  uint32_t index_ = blockIdx.x, block_ = 0;
  Item item_;
};

// By one thread. The first weights are under way before the kernel before has ended; which experts'
// they are is not known then.
template <class S>
__device__ void copy_items(const ParamsOf<S>& p, const Ring& ring) {
  const uint64_t once = p.token_tiles > 1 ? evict_normally() : evict_first(), kept = evict_last();
  const uint32_t bytes = S::kBlocks * (S::kTokens * kRowBytes + S::kGroups * ring.tile_bytes);
  const auto full_at = [&](uint32_t stage) { return ring.full + stage * 8; };
  uint32_t ahead = 0;
  if constexpr (!S::kExperts) {
    for (Stages<S> stages(p); ahead < ring.count && stages.any(); ++ahead, stages.next()) {
      arrive_and_expect(full_at(ahead), bytes);
      stages.copy_weights(ring.at(ahead), full_at(ahead), ring.tile_bytes, once);
    }
  }
  wait_for_kernel_before();
  Place place;
  uint32_t count = 0;
  for (Stages<S> stages(p); stages.any(); stages.next()) {
    const uint32_t to = ring.at(place.stage), full = full_at(place.stage);
    if (count++ >= ahead) {
      wait(ring.empty + place.stage * 8, place.parity ^ 1);
      arrive_and_expect(full, bytes);
      stages.copy_weights(to, full, ring.tile_bytes, once);
    }
    stages.copy_rows(to, full, kept);
    place.next(ring.count);
  }
}

// Products of a block of 64 inputs.
template <class S>
__device__ void add_block(uint32_t weights, uint32_t rows, float (&sums)[S::kTokens / 2]) {
#pragma unroll
  for (uint32_t step = 0; step < kSteps; ++step) {
    add_products<S::kTokens>(sums, descriptor(weights) + step * 2, descriptor(rows) + step * 2);
  }
}

// One segment of weights that are as they are multiplied: a chain from +0. A stage is given back
// when the products after it are under way.
template <class S>
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
      add_block<S>(weights + b * kTileBytes, rows + b * S::kTokens * kRowBytes, sums);
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

// The same, of codes: the threads of a warpgroup make a tile of a block's, and while it is
// multiplied they make the next one.
template <class S>
__device__ void sum_made_tiles(const ParamsOf<S>& p, const Ring& ring, Place& place,
                               float (&sums)[S::kTokens / 2]) {
  const uint32_t group = threadIdx.x / kWarpgroup;
  const bool tells = threadIdx.x % kWarp == 0;
  const auto give_back = [&](uint32_t stage) {
    if (stage != UINT32_MAX && tells) arrive(ring.empty + stage * 8);
  };
  // The stages that blocks before were the last of.
  uint32_t one_before = UINT32_MAX, two_before = UINT32_MAX, made = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < p.matrix.segment_blocks; i += S::kBlocks) {
    const uint32_t rows = ring.at(place.stage);
    wait(ring.full + place.stage * 8, place.parity);
#pragma unroll 1
    for (uint32_t b = 0; b < S::kBlocks; ++b) {
      const uint32_t tile = ring.made + (group * S::kMadeTiles + made) * kTileBytes;
      const uint32_t codes =
          rows + S::kBlocks * S::kTokens * kRowBytes + (group * S::kBlocks + b) * ring.tile_bytes;
      made = made + 1 == S::kMadeTiles ? 0 : made + 1;
      wait_products<1>();
      give_back(two_before);
      if constexpr (S::kStrips) {
        make_tile_of_strips(codes - b * ring.tile_bytes, b, p.matrix.format.low, tile);
      } else {
        make_tile<S::kBits>(codes, p.matrix.format, tile);
      }
      sync_warpgroup(group);
      fence_products();
      add_block<S>(tile, rows + b * S::kTokens * kRowBytes, sums);
      commit_products();
      two_before = one_before;
      one_before = b + 1 == S::kBlocks ? place.stage : UINT32_MAX;
    }
    place.next(ring.count);
  }
  wait_products<0>();
  give_back(two_before);
  give_back(one_before);
}

// The same, of strips, whose numbers are made in registers. Two products are under way: while the
// registers of one are read those of the other are made.
template <class S, bool kLow>
__device__ void sum_strips(const ParamsOf<S>& p, const Ring& ring, Place& place,
                           float (&sums)[S::kTokens / 2]) {
  constexpr uint32_t kTiles = kStripInputs / kTileInputs;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint32_t before = UINT32_MAX, numbers[2][4];
#pragma unroll 1
  for (uint32_t i = 0; i < p.matrix.segment_blocks; i += kTiles) {
    const uint32_t rows = ring.at(place.stage);
    const uint32_t strip = rows + kTiles * S::kTokens * kRowBytes + warp * kStripBytes;
    wait(ring.full + place.stage * 8, place.parity);
    const uint64_t first = descriptor(__shfl_sync(0xffffffffU, rows, 0));
#pragma unroll
    for (uint32_t tile = 0; tile < kTiles; ++tile) {
      const uint4 codes = load_shared(strip + tile * (kStripCodes / kTiles) + lane * 16);
      const uint4 scales = load_shared(strip + kStripCodes + lane / 4 * 32 + tile / 2 * 16);
      const uint32_t words[kSteps] = {codes.x, codes.y, codes.z, codes.w};
      const uint32_t pairs[4] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
        wait_products<1>();
        if (tile == 0 && step == 2 && before != UINT32_MAX && lane == 0) {
          arrive(ring.empty + before * 8);  // nothing of the stage before is under way
        }
        make_fragment<kLow>(words[step], StripScales<kLow>(pairs[tile % 2 * 2 + step / 2]),
                            numbers[step % 2]);
        fence_products();
        add_products_of_fragments<S::kTokens>(
            sums, numbers[step % 2], first + tile * (S::kTokens * kRowBytes / 16) + step * 2);
        commit_products();
      }
    }
    before = place.stage;
    place.next(ring.count);
  }
  wait_products<0>();
  if (lane == 0) arrive(ring.empty + before * 8);
}

template <class S>
__device__ void sum_segment(const ParamsOf<S>& p, const Ring& ring, Place& place,
                            float (&sums)[S::kTokens / 2]) {
#pragma unroll
  for (uint32_t j = 0; j < S::kTokens / 2; ++j) sums[j] = 0;
  if constexpr (S::kTakes) {
    p.matrix.format.low ? sum_strips<S, true>(p, ring, place, sums)
                        : sum_strips<S, false>(p, ring, place, sums);
  } else if constexpr (S::kMakes) {
    sum_made_tiles<S>(p, ring, place, sums);
  } else {
    sum_tiles<S>(p, ring, place, sums);
  }
}

template <class S>
__device__ void write_sums(const ParamsOf<S>& p, const Item& item,
                           const float (&sums)[S::kTokens / 2]) {
  const uint32_t thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp;
  const uint32_t row = (item.row_tile * S::kGroups + threadIdx.x / kWarpgroup) * kTileRows +
                       thread / kWarp * 16 + lane / 4;
  const auto* const scales = reinterpret_cast<const float*>(item.blocks + p.matrix.block_bytes());
  const float* bias = p.bias;
  if (S::kExperts && bias != nullptr) bias += size_t{item.expert} * p.matrix.outputs;
#pragma unroll
  for (uint32_t j = 0; j < S::kTokens / 2; ++j) {
    const uint32_t output = row + j / 2 % 2 * 8;
    const uint32_t token = item.token_tile * S::kTokens + j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (token >= p.rows || output >= p.matrix.outputs) continue;
    if (p.sums != nullptr) {
      p.sums[(size_t{item.segment} * p.rows + token) * p.matrix.outputs + output] = sums[j];
      continue;
    }
    uint32_t to = token;
    if constexpr (S::kExperts) to = p.routes[token];
    if (S::kExperts && to == UINT32_MAX) continue;
    const float value = sums[j] * scales[output] * p.x_scales[token];
    p.out[to * p.out_stride + output] = bias == nullptr ? value : value + bias[output];
  }
}

template <class S>
__device__ void multiply_items(const ParamsOf<S>& p, const Ring& ring) {
  Place place;
  for (uint32_t index = blockIdx.x; index < items_of<S>(p); index += gridDim.x) {
    Item item;
    if (!item_at<S>(p, index, item)) continue;
    float sums[S::kTokens / 2];
    sum_segment<S>(p, ring, place, sums);
    if constexpr (S::kAdds) {
      float total[S::kTokens / 2];
#pragma unroll
      for (uint32_t j = 0; j < S::kTokens / 2; ++j) total[j] = sums[j];
      for (uint32_t s = 1; s < p.matrix.segments; ++s) {
        sum_segment<S>(p, ring, place, sums);
#pragma unroll
        for (uint32_t j = 0; j < S::kTokens / 2; ++j) total[j] = total[j] + sums[j];
      }
      write_sums<S>(p, item, total);
    } else {
      write_sums<S>(p, item, sums);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreadsOfBlock, S::kShare)
    multiply_tiles(const __grid_constant__ ParamsOf<S> p) {
  extern __shared__ __align__(1024) std::byte shared[];
  const Ring ring = ring_of<S>(shared, p);
  if constexpr (S::kBits == 4) load_table(p.matrix.format);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < ring.count; ++i) {
      init_barrier(ring.full + i * 8, 1);
      init_barrier(ring.empty + i * 8, S::kGroups * kWarpgroup / kWarp);
    }
    fence_barriers();
  }
  __syncthreads();
  // Where memory is not what binds, blocks of threads that come early are only in the way.
  if constexpr (!S::kTakes) let_next_kernel_begin();
  if (threadIdx.x < S::kGroups * kWarpgroup) {
    wait_for_kernel_before();
    multiply_items<S>(p, ring);
  } else if (threadIdx.x % kWarp == 0) {
    copy_items<S>(p, ring);
  }
}

// Few rows: as many blocks of threads as there are segments and 64 outputs. Two blocks of inputs a
// stage where segments have an even number of them.
template <uint32_t kBits, uint32_t kTokens>
inline constexpr uint32_t kStreamShare = kTokens > 16                  ? 2
                                         : kTokens == 16 && kBits == 8 ? 3
                                                                       : 4;
template <uint32_t kBits, uint32_t kTokens, uint32_t kBlocks>
using Stream = Shape<kBits, kTokens, 1, kBlocks, kStreamShare<kBits, kTokens>, false>;
// Many rows.
template <uint32_t kBits, uint32_t kBlocks>
using Tile = Shape<kBits, 128, 2, kBlocks, 1, true>;
template <uint32_t kBits>
using WideTile = Shape<kBits, 256, 2, 1, 1, false>;
template <uint32_t kBits, uint32_t kTokens, uint32_t kBlocks>
using ExpertTile = Shape<kBits, kTokens, 1, kBlocks, (kTokens <= 16 ? 4 : 2), true, true>;

template <class S>
cudaError_t set_shared_bytes() {
  return cudaFuncSetAttribute(multiply_tiles<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              S::kSharedBytes);
}

template <class S>
void launch(const ParamsOf<S>& params, uint32_t processors, cudaStream_t stream) {
  const uint32_t row_tiles = groups_of(params.matrix.outputs, S::kGroups * kTileRows);
  const uint32_t items = row_tiles * params.token_tiles * (S::kAdds ? 1 : params.matrix.segments);
  const uint32_t blocks = std::min(items, processors * S::kShare);
  // Where tensor cores are what binds, blocks of threads that come early are only in the way.
  if (S::kTokens > kMostStreamed || S::kExperts) {
    multiply_tiles<S><<<blocks, S::kThreadsOfBlock, S::kSharedBytes, stream>>>(params);
  } else {
    launch_overlapped(multiply_tiles<S>, blocks, S::kThreadsOfBlock, S::kSharedBytes, stream,
                      params);
  }
}

// Of strips; few rows have kernels of their own (product_params.h), many are widened.
// Segments are short: two blocks of threads on a processor wait less than one that is as large.
template <uint32_t kTokens, uint32_t kShare>
using StripTile = Shape<4, kTokens, 4 / kShare, 4, kShare, false>;

// fn(shape) for every shape that there is.
template <uint32_t kBits, class Fn>
void for_each_shape(const Fn& fn) {
  fn(Stream<kBits, 8, 1>());
  fn(Stream<kBits, 16, 1>());
  fn(Stream<kBits, 32, 1>());
  fn(Stream<kBits, 64, 1>());
  fn(Stream<kBits, 8, 2>());
  fn(Stream<kBits, 16, 2>());
  fn(Stream<kBits, 32, 2>());
  fn(Stream<kBits, 64, 2>());
  fn(Tile<kBits, 1>());
  fn(Tile<kBits, 2>());
  fn(WideTile<kBits>());
  fn(ExpertTile<kBits, 8, 1>());
  fn(ExpertTile<kBits, 8, 2>());
  fn(ExpertTile<kBits, 64, 1>());
  fn(ExpertTile<kBits, 64, 2>());
  if constexpr (kBits == 4) {
    fn(StripTile<32, 1>());
    fn(StripTile<64, 1>());
    fn(StripTile<32, 2>());
    fn(StripTile<64, 2>());
    fn(ExpertTile<kBits, 8, 4>());
    fn(ExpertTile<kBits, 64, 4>());
  }
}

template <uint32_t kBits, uint32_t kBlocks>
void stream_rows(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  if (params.rows <= 8) return launch<Stream<kBits, 8, kBlocks>>(params, processors, stream);
  if (params.rows <= 16) return launch<Stream<kBits, 16, kBlocks>>(params, processors, stream);
  if (params.rows <= 32) return launch<Stream<kBits, 32, kBlocks>>(params, processors, stream);
  launch<Stream<kBits, 64, kBlocks>>(params, processors, stream);
}

template <uint32_t kShare>
void multiply_strips_of(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  params.rows <= 32 ? launch<StripTile<32, kShare>>(params, processors, stream)
                    : launch<StripTile<64, kShare>>(params, processors, stream);
}

inline bool has_even_segments(const DeviceTiles& matrix) {
  return matrix.segment_blocks % 2 == 0;
}

template <uint32_t kBits>
struct ProductsOf {
  static cudaError_t set_up() {
    cudaError_t error = cudaSuccess;
    for_each_shape<kBits>([&](auto shape) {
      const cudaError_t own = set_shared_bytes<decltype(shape)>();
      if (error == cudaSuccess) error = own;
    });
    return error;
  }
  static void multiply(ProductParams params, uint32_t processors, cudaStream_t stream) {
    const bool even = has_even_segments(params.matrix);
    if constexpr (kBits == 4) {
      if (params.matrix.format.strips) {
        return params.matrix.segments == 1 ? multiply_strips_of<1>(params, processors, stream)
                                           : multiply_strips_of<2>(params, processors, stream);
      }
    }
    if (params.rows <= kMostStreamed) {
      return even ? stream_rows<kBits, 2>(params, processors, stream)
                  : stream_rows<kBits, 1>(params, processors, stream);
    }
    if (params.matrix.segments == 1 && params.rows > 128) {
      params.token_tiles = groups_of(params.rows, WideTile<kBits>::kTokens);
      return launch<WideTile<kBits>>(params, processors, stream);
    }
    params.token_tiles = groups_of(params.rows, 128);
    even ? launch<Tile<kBits, 2>>(params, processors, stream)
         : launch<Tile<kBits, 1>>(params, processors, stream);
  }
  static void multiply_experts(const ExpertParams& params, uint32_t tile_rows, uint32_t processors,
                               cudaStream_t stream) {
    const bool few = tile_rows == ExpertTile<kBits, 8, 1>::kTokens;
    if constexpr (kBits == 4) {
      if (params.matrix.format.strips) {
        return few ? launch<ExpertTile<kBits, 8, 4>>(params, processors, stream)
                   : launch<ExpertTile<kBits, 64, 4>>(params, processors, stream);
      }
    }
    if (has_even_segments(params.matrix)) {
      return few ? launch<ExpertTile<kBits, 8, 2>>(params, processors, stream)
                 : launch<ExpertTile<kBits, 64, 2>>(params, processors, stream);
    }
    few ? launch<ExpertTile<kBits, 8, 1>>(params, processors, stream)
        : launch<ExpertTile<kBits, 64, 1>>(params, processors, stream);
  }
};

}  // namespace skein::cuda
