// Products of tiles on tensor cores. A block of threads is one or two warpgroups that multiply, and
// a warp of which one thread keeps a ring of copies under way.
#include <type_traits>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/segment_sums.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kWarpgroup = 128;
constexpr uint32_t kRowBytes = kTileInputs * sizeof(uint16_t);
constexpr uint32_t kSteps = kTileInputs / arithmetic::kF16Group;  // of a block

// What a block of threads works on at once: 64 * kGroups outputs, kTokens rows, kBlocks * 64 inputs
// a stage of the ring, and how many such blocks of threads share a processor. kAdds: one goes
// through all segments and adds them up; else through one of them.
template <uint32_t kTokensOf, uint32_t kGroupsOf, uint32_t kBlocksOf, uint32_t kShareOf,
          bool kAddsOf, bool kExpertsOf = false>
struct Shape {
  static constexpr uint32_t kTokens = kTokensOf, kGroups = kGroupsOf, kBlocks = kBlocksOf,
                            kShare = kShareOf;
  static constexpr bool kAdds = kAddsOf, kExperts = kExpertsOf;
  static constexpr uint32_t kThreadsOfBlock = kGroups * kWarpgroup + kWarp;
  static constexpr uint32_t kWeightBytes = kGroups * kBlocks * kTileBytes;
  static constexpr uint32_t kStageBytes = kWeightBytes + kBlocks * kTokens * kRowBytes;
  static constexpr uint32_t kProcessorBytes = 233472, kBlockOverhead = 1024;
  static constexpr uint32_t kRingBytes =
      (kProcessorBytes / kShare - kBlockOverhead) / 1024 * 1024 - 1024;
  static constexpr uint32_t kStages = kRingBytes / kStageBytes < 32 ? kRingBytes / kStageBytes : 32;
  static_assert(kStages >= 2);
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes + kStages * 16;
};

struct ProductParams {
  DeviceTiles matrix;
  const float* bias;
  const std::byte* x;
  const float* x_scales;
  uint32_t x_rows;  // of the tiles
  uint32_t rows;
  uint32_t token_tiles;
  float* sums;  // of segments, [segment][row][output]; nullptr: `out` is written
  float* out;
  size_t out_stride;
};

struct ExpertParams : ProductParams {
  const uint32_t* routes;  // as in ExpertTiles
  const uint32_t* experts;
  ExpertBlocks table;
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
  }
  return true;
}

// A ring's place and the parity of its round.
struct Place {
  uint32_t stage = 0, parity = 0;

  template <uint32_t kStages>
  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  uint32_t stages, full, empty;  // addresses
};

template <class S>
__device__ Ring ring_of(const void* shared) {
  const uint32_t stages = shared_address(shared);
  const uint32_t full = stages + S::kStages * S::kStageBytes;
  return {stages, full, full + S::kStages * 8};
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
  __device__ void copy_weights(uint32_t to, uint32_t full, uint64_t policy) const {
    const uint32_t last = p_.matrix.row_blocks() - 1, blocks = p_.matrix.input_blocks();
    for (uint32_t g = 0; g < S::kGroups; ++g) {
      const size_t row_block = min(item_.row_tile * S::kGroups + g, last);
      copy_bulk(to + g * S::kBlocks * kTileBytes,
                item_.blocks + (row_block * blocks + block()) * kTileBytes, S::kBlocks * kTileBytes,
                full, policy);
    }
  }
  __device__ void copy_rows(uint32_t to, uint32_t full, uint64_t policy) const {
    for (uint32_t b = 0; b < S::kBlocks; ++b) {
      const size_t first = size_t{block() + b} * p_.x_rows + item_.token_tile * S::kTokens;
      copy_bulk(to + S::kWeightBytes + b * S::kTokens * kRowBytes, p_.x + first * kRowBytes,
                S::kTokens * kRowBytes, full, policy);
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
  const auto stage_at = [&](uint32_t stage) { return ring.stages + stage * S::kStageBytes; };
  const auto full_at = [&](uint32_t stage) { return ring.full + stage * 8; };
  uint32_t ahead = 0;
  if constexpr (!S::kExperts) {
    for (Stages<S> stages(p); ahead < S::kStages && stages.any(); ++ahead, stages.next()) {
      arrive_and_expect(full_at(ahead), S::kStageBytes);
      stages.copy_weights(stage_at(ahead), full_at(ahead), once);
    }
  }
  wait_for_kernel_before();
  Place place;
  uint32_t count = 0;
  for (Stages<S> stages(p); stages.any(); stages.next()) {
    const uint32_t to = stage_at(place.stage), full = full_at(place.stage);
    if (count++ >= ahead) {
      wait(ring.empty + place.stage * 8, place.parity ^ 1);
      arrive_and_expect(full, S::kStageBytes);
      stages.copy_weights(to, full, once);
    }
    stages.copy_rows(to, full, kept);
    place.next<S::kStages>();
  }
}

// One segment: a chain from +0. A stage is given back when the products after it are under way.
template <class S>
__device__ void sum_segment(const ParamsOf<S>& p, const Ring& ring, Place& place,
                            float (&sums)[S::kTokens / 2]) {
  const uint32_t group = threadIdx.x / kWarpgroup;
  const bool tells = threadIdx.x % kWarp == 0;
#pragma unroll
  for (uint32_t j = 0; j < S::kTokens / 2; ++j) sums[j] = 0;
  uint32_t before = UINT32_MAX;
#pragma unroll 1
  for (uint32_t i = 0; i < p.matrix.segment_blocks; i += S::kBlocks) {
    const uint32_t stage = ring.stages + place.stage * S::kStageBytes;
    const uint32_t weights = stage + group * S::kBlocks * kTileBytes;
    const uint32_t rows = stage + S::kWeightBytes;
    wait(ring.full + place.stage * 8, place.parity);
    fence_products();
#pragma unroll
    for (uint32_t step = 0; step < S::kBlocks * kSteps; ++step) {
      const uint32_t b = step / kSteps;
      add_products<S::kTokens>(sums, descriptor(weights + b * kTileBytes) + step % kSteps * 2,
                               descriptor(rows + b * S::kTokens * kRowBytes) + step % kSteps * 2);
    }
    commit_products();
    wait_products<1>();
    if (before != UINT32_MAX && tells) arrive(ring.empty + before * 8);
    before = place.stage;
    place.next<S::kStages>();
  }
  wait_products<0>();
  if (tells) arrive(ring.empty + before * 8);
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
  const Ring ring = ring_of<S>(shared);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      init_barrier(ring.full + i * 8, 1);
      init_barrier(ring.empty + i * 8, S::kGroups * kWarpgroup / kWarp);
    }
    fence_barriers();
  }
  __syncthreads();
  let_next_kernel_begin();
  if (threadIdx.x < S::kGroups * kWarpgroup) {
    wait_for_kernel_before();
    multiply_items<S>(p, ring);
  } else if (threadIdx.x % kWarp == 0) {
    copy_items<S>(p, ring);
  }
}

// Few rows: as many blocks of threads as there are segments and 64 outputs. Two blocks of inputs a
// stage where segments have an even number of them.
template <uint32_t kTokens, uint32_t kBlocks>
using Stream = Shape<kTokens, 1, kBlocks, (kTokens <= 16 ? 4 : 2), false>;
// Many rows.
template <uint32_t kBlocks>
using Tile = Shape<128, 2, kBlocks, 1, true>;
using WideTile = Shape<256, 2, 1, 1, false>;
template <uint32_t kTokens, uint32_t kBlocks>
using ExpertTile = Shape<kTokens, 1, kBlocks, (kTokens <= 16 ? 4 : 2), true, true>;

constexpr uint32_t kMostStreamed = 64;
constexpr uint32_t kWideRows = 256;

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

// fn(shape) for every shape that there is.
template <class Fn>
void for_each_shape(const Fn& fn) {
  fn(Stream<8, 1>());
  fn(Stream<16, 1>());
  fn(Stream<32, 1>());
  fn(Stream<64, 1>());
  fn(Stream<8, 2>());
  fn(Stream<16, 2>());
  fn(Stream<32, 2>());
  fn(Stream<64, 2>());
  fn(Tile<1>());
  fn(Tile<2>());
  fn(WideTile());
  fn(ExpertTile<8, 1>());
  fn(ExpertTile<8, 2>());
  fn(ExpertTile<64, 1>());
  fn(ExpertTile<64, 2>());
}

template <uint32_t kBlocks>
void stream_rows(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  if (params.rows <= 8) return launch<Stream<8, kBlocks>>(params, processors, stream);
  if (params.rows <= 16) return launch<Stream<16, kBlocks>>(params, processors, stream);
  if (params.rows <= 32) return launch<Stream<32, kBlocks>>(params, processors, stream);
  launch<Stream<64, kBlocks>>(params, processors, stream);
}

__global__ void __launch_bounds__(kThreads)
    add_segment_sums(const __grid_constant__ SegmentSums sums, DeviceRows out) {
  const uint32_t n = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (n < sums.outputs) row_at(out, row)[n] = product_at<1>(sums, row, n).at[0];
}

bool has_even_segments(const DeviceTiles& matrix) {
  return matrix.segment_blocks % 2 == 0;
}

bool is_streamed(uint32_t rows) {
  return rows <= kMostStreamed;
}

__global__ void __launch_bounds__(1024)
    sort_by_expert(DeviceRoutes routes, uint32_t count, uint32_t experts, ExpertTiles tiles) {
  extern __shared__ uint32_t places[];  // [experts] the rows of each, then where the next goes
  for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x) places[e] = 0;
  for (uint32_t i = threadIdx.x; i < tiles.tiles * tiles.tile_rows; i += blockDim.x) {
    tiles.routes[i] = UINT32_MAX;
  }
  for (uint32_t t = threadIdx.x; t < tiles.tiles; t += blockDim.x) tiles.experts[t] = UINT32_MAX;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    atomicAdd(&places[routes.experts[i]], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t tile = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      const uint32_t first = tile;
      for (uint32_t left = places[e]; left > 0; left -= min(left, tiles.tile_rows)) {
        tiles.experts[tile++] = e;
      }
      places[e] = first * tiles.tile_rows;
    }
  }
  __syncthreads();
  // Where among its expert's rows one comes enters no result.
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    tiles.routes[atomicAdd(&places[routes.experts[i]], 1)] = i;
  }
}

}  // namespace

ExpertTiles ExpertTiles::of(uint32_t routes, uint32_t experts) {
  constexpr uint32_t kFew = 8, kMany = 64;
  const uint32_t each = routes <= kFew * experts ? kFew : kMany;
  return {nullptr, nullptr, routes / each + std::min(routes, experts), each};
}

cudaError_t set_up_products() {
  cudaError_t error = cudaSuccess;
  for_each_shape([&](auto shape) {
    const cudaError_t own = set_shared_bytes<decltype(shape)>();
    if (error == cudaSuccess) error = own;
  });
  return error;
}

uint32_t tiled_rows(uint32_t rows) {
  if (!is_streamed(rows)) return groups_of(rows, kWideRows) * kWideRows;
  for (const uint32_t tokens : {8U, 16U, 32U}) {
    if (rows <= tokens) return tokens;
  }
  return kMostStreamed;
}

size_t sums_of_segments(const DeviceTiles& matrix, uint32_t rows) {
  if (!is_streamed(rows) || matrix.segments == 1) return 0;
  return size_t{matrix.segments} * rows * matrix.outputs;
}

SegmentSums multiply(const DeviceTiles& matrix, const float* bias, const ProductScratch& scratch,
                     DeviceRows out, uint32_t processors, cudaStream_t stream) {
  if (out.rows == 0 || matrix.outputs == 0) return {};
  ProductParams params{matrix,   bias, scratch.tiles, scratch.scales, scratch.rows,
                       out.rows, 1,    nullptr,       out.data,       out.stride};
  if (is_streamed(out.rows)) {
    if (matrix.segments > 1) params.sums = scratch.sums;
    if (has_even_segments(matrix)) {
      stream_rows<2>(params, processors, stream);
    } else {
      stream_rows<1>(params, processors, stream);
    }
    if (matrix.segments == 1) return {};
    const auto* const scales = reinterpret_cast<const float*>(matrix.blocks + matrix.block_bytes());
    return {scratch.sums, scales, scratch.scales, bias, matrix.segments, out.rows, matrix.outputs};
  }
  if (matrix.segments == 1 && out.rows > 128) {
    params.token_tiles = groups_of(out.rows, WideTile::kTokens);
    launch<WideTile>(params, processors, stream);
    return {};
  }
  params.token_tiles = groups_of(out.rows, 128);
  if (has_even_segments(matrix)) {
    launch<Tile<2>>(params, processors, stream);
  } else {
    launch<Tile<1>>(params, processors, stream);
  }
  return {};
}

void add_segments(const SegmentSums& sums, DeviceRows out, cudaStream_t stream) {
  const dim3 grid(groups_of(sums.outputs, kThreads), sums.rows);
  launch_overlapped(add_segment_sums, grid, kThreads, 0, stream, sums, out);
}

void sort_routes(const DeviceRoutes& routes, uint32_t count, uint32_t experts,
                 const ExpertTiles& tiles, cudaStream_t stream) {
  if (count == 0) return;
  sort_by_expert<<<1, 1024, experts * sizeof(uint32_t), stream>>>(routes, count, experts, tiles);
}

void multiply_experts(const ExpertBlocks& table, const DeviceTiles& shape, const float* biases,
                      const ExpertTiles& tiles, const ProductScratch& scratch, DeviceRows out,
                      uint32_t processors, cudaStream_t stream) {
  if (out.rows == 0 || shape.outputs == 0) return;
  const ExpertParams params{{shape, biases, scratch.tiles, scratch.scales, scratch.rows,
                             tiles.rows(), tiles.tiles, nullptr, out.data, out.stride},
                            tiles.routes,
                            tiles.experts,
                            table};
  const bool few = tiles.tile_rows == ExpertTile<8, 1>::kTokens;
  if (has_even_segments(shape)) {
    return few ? launch<ExpertTile<8, 2>>(params, processors, stream)
               : launch<ExpertTile<64, 2>>(params, processors, stream);
  }
  few ? launch<ExpertTile<8, 1>>(params, processors, stream)
      : launch<ExpertTile<64, 1>>(params, processors, stream);
}

}  // namespace skein::cuda
