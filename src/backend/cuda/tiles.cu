// Rows become tiles of float16 numbers, by a block of threads for each row, or by a cluster of
// them.
#include "backend/cuda/row_tiles.cuh"

namespace skein::cuda {
namespace {

using arithmetic::fma;

// Rows as they are, of any width and alignment.
__global__ void __launch_bounds__(kThreads) make_tiles(const __grid_constant__ TileParams p) {
  const uint32_t row = blockIdx.x;
  let_next_kernel_begin();
  wait_for_kernel_before();
  const uint32_t route = p.routes == nullptr ? row : p.routes[row];
  if (route == UINT32_MAX) return;
  const float* const x = row_at(p.x, route / p.rows_of_route);
  uint32_t largest = 0;
  for (uint32_t k = threadIdx.x; k < p.width; k += kThreads) {
    largest = max(largest, arithmetic::bits_of_float(x[k]) & 0x7fffffffU);
  }
  const int32_t exponent = arithmetic::f16_exponent(largest_of<kThreads>(largest));
  const float scale = arithmetic::power_of_two(exponent);
  if (threadIdx.x == 0) p.scales[row] = arithmetic::power_of_two(-exponent);
  for (uint32_t k = threadIdx.x; k < p.input_blocks * kTileInputs; k += kThreads) {
    std::byte* const block = p.tiles + size_t{k / kTileInputs} * p.tile_rows * (2 * kTileInputs);
    const uint16_t value = k < p.width ? f16_of(x[k] * scale) : uint16_t{0};
    *reinterpret_cast<uint16_t*>(block + offset_in_tile(row, k % kTileInputs)) = value;
  }
}

// Rows of few numbers, each kept by the thread that read them: 4 * kVectors for each of 512
// threads. More threads would not fit beside those of a product, whose end they have to await.
constexpr uint32_t kManyThreads = 512;

// So many blocks of threads share a processor: it takes them to keep memory busy.
template <uint32_t kVectors>
constexpr uint32_t kRowsAtOnce = kVectors > 4 ? 2 : 3;

template <uint32_t kVectors, Change kChange>
__global__ void __launch_bounds__(kManyThreads, kRowsAtOnce<kVectors>)
    make_tiles_at_once(const __grid_constant__ TileParams p) {
  const uint32_t row = blockIdx.y;
  const auto first_of = [](uint32_t v) { return 4 * (v * kManyThreads + threadIdx.x); };
  let_next_kernel_begin();
  wait_for_kernel_before();
  Outputs<4> x[kVectors] = {};
  load_all<kChange>(p, row, first_of, x);
  const float scale = scale_of_row(p, row, largest_of<kManyThreads>(largest_of_thread(x)));
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) put_in_tiles(p, row, first_of(v), x[v], scale);
}

// Parts of a row are for the blocks of threads of a cluster: one alone takes as long for the
// activations of a row as a product for a third of its weights. What they share is the largest
// number.
constexpr uint32_t kParts = 8, kPartThreads = 512;

// The largest of all parts; each has begun.
__device__ uint32_t largest_of_cluster(uint32_t largest) {
  __shared__ uint32_t largest_of_parts[kParts];
  largest = largest_of<kPartThreads>(largest);
  if (threadIdx.x < gridDim.x) put_in_cluster(&largest_of_parts[blockIdx.x], threadIdx.x, largest);
  arrive_at_cluster();
  wait_for_cluster();
  for (uint32_t i = 0; i < gridDim.x; ++i) largest = max(largest, largest_of_parts[i]);
  return largest;
}

template <uint32_t kVectors, Change kChange>
__global__ void __launch_bounds__(kPartThreads, kVectors > 1 || kChange == Change::kMerge ? 2 : 4)
    make_tiles_in_parts(const __grid_constant__ TileParams p) {
  const uint32_t part = blockIdx.x, row = blockIdx.y;
  const auto first_of = [part](uint32_t v) {
    return 4 * ((v * gridDim.x + part) * kPartThreads + threadIdx.x);
  };
  arrive_at_cluster();
  let_next_kernel_begin();
  wait_for_kernel_before();
  Outputs<4> x[kVectors] = {};
  load_all<kChange>(p, row, first_of, x);
  const uint32_t largest = largest_of_thread(x);
  wait_for_cluster();  // all of its blocks have begun: their memory is there
  const float scale = scale_of_row(p, row, largest_of_cluster(largest));
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) put_in_tiles(p, row, first_of(v), x[v], scale);
}

// The numbers of a row as 16 lanes, each of which lies side by side, with zeros at the end.
template <uint32_t kNumbers>
struct alignas(16) LaneRows {
  float at[kLaneThreads][kNumbers / kLaneThreads + 4];
};

// The sum of a row or of its squares by a warp. The next numbers are on their way while those
// before are added, each to the one before: that is all it should have to wait for.
template <bool kSquares, uint32_t kNumbers>
__device__ float sum_in_lanes(const LaneRows<kNumbers>& lanes, uint32_t width) {
  constexpr uint32_t kEach = 4;  // of which every one is four
  const auto* from = reinterpret_cast<const float4*>(lanes.at[threadIdx.x % kLaneThreads]);
  float sum = 0;
  float4 next[kEach];
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) next[i] = from[i];
#pragma unroll 1
  for (uint32_t left = groups_of(width, 4 * kEach * kLaneThreads); left > 0; --left) {
    float4 now[kEach];
    if (left > 1) from += kEach;
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      now[i] = next[i];
      next[i] = from[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      for (const float y : {now[i].x, now[i].y, now[i].z, now[i].w}) {
        sum = kSquares ? fma(y, y, sum) : sum + y;
      }
    }
  }
  return sum_of_lanes(sum);
}

// Of rows with a norm: all that needs memory is shared by a cluster of blocks of threads, since the
// segments of a row are more than a processor gets in the time that the rest takes; its first one
// does the rest. A row is kPieces times four numbers for each thread, of which one loads kVectors.
constexpr uint32_t kNormThreads = 256;

template <uint32_t kVectors, uint32_t kPieces, Change kChange>
__global__ void __launch_bounds__(kNormThreads, 2) norm_rows(const __grid_constant__ TileParams p) {
  constexpr uint32_t kBlocks = kPieces / kVectors;
  __shared__ LaneRows<4 * kNormThreads * kPieces> lanes;
  __shared__ float result;
  const uint32_t row = blockIdx.y;
  const auto place = [](uint32_t piece) { return 4 * (piece * kNormThreads + threadIdx.x); };
  const auto own_place = [&](uint32_t v) { return place(v * kBlocks + blockIdx.x); };
  const auto lane_at = [&](uint32_t k) { return &lanes.at[k % kLaneThreads][k / kLaneThreads]; };
  arrive_at_cluster();
  let_next_kernel_begin();
  Outputs<4> weights[kPieces] = {}, x[kPieces] = {};
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (blockIdx.x > 0 || p.norm.weight == nullptr || place(i) >= p.width) continue;
    weights[i] = load_outputs<4>(p.norm.weight + place(i));
  }
  for (uint32_t v = 0; v < kVectors && kChange == Change::kNormOfSums; ++v) {
    if (own_place(v) < p.width) fetch_scales(p.delta_sums, own_place(v));
  }
  wait_for_kernel_before();
  auto& loaded = reinterpret_cast<Outputs<4>(&)[kVectors]>(x);
  load_all<kChange>(p, row, own_place, loaded);
  wait_for_cluster();  // all of its blocks have begun: their memory is there
#pragma unroll
  for (uint32_t j = 0; j < 4 * kVectors; ++j) {
    auto* const to = reinterpret_cast<uint32_t*>(lane_at(own_place(j / 4) + j % 4));
    put_in_cluster(to, 0, arithmetic::bits_of_float(loaded[j / 4].at[j % 4]));
  }
  arrive_at_cluster();
  wait_for_cluster();
  if (blockIdx.x > 0) return;
  const auto sum = [&]<bool kSquares>(std::bool_constant<kSquares>) {
    if (threadIdx.x < kWarp) {
      const float all = sum_in_lanes<kSquares>(lanes, p.width) / static_cast<float>(p.width);
      if (threadIdx.x == 0) result = kSquares ? 1.0F / sqrtf(all + p.norm.epsilon) : all;
    }
    __syncthreads();
    return result;
  };
  if (p.norm.kind == NormKind::kLayer) {
    const float mean = sum(std::false_type());
    for (uint32_t k = threadIdx.x; k < p.width; k += kNormThreads) *lane_at(k) = *lane_at(k) - mean;
    __syncthreads();
  }
  const float scale = sum(std::true_type());
#pragma unroll
  for (uint32_t j = 0; j < 4 * kPieces; ++j) {
    const uint32_t k = place(j / 4) + j % 4;
    float y = *lane_at(k) * scale;
    if (p.norm.weight != nullptr) y = y * weights[j / 4].at[j % 4];
    if (p.norm.bias != nullptr && k < p.width) y = y + p.norm.bias[k];
    x[j / 4].at[j % 4] = k < p.width ? y : 0.0F;
  }
  const float power = scale_of_row(p, row, largest_of<kNormThreads>(largest_of_thread(x)));
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) put_in_tiles(p, row, place(i), x[i], power);
}

constexpr uint32_t kFewRows = 132;

constexpr uint32_t kMostNormed = 8192;  // numbers of a row: they are in shared memory, too

// Whether rows of so many numbers, with the zeros at the end, fit into registers.
bool fits_at_once(uint32_t numbers, uint32_t rows, bool normed) {
  if (normed) return numbers <= kMostNormed;
  return numbers <= 4 * (rows > kFewRows ? 8 * kManyThreads : 4 * kParts * kPartThreads);
}

template <Change kChange>
void launch_at_once(const TileParams& params, uint32_t rows, cudaStream_t stream) {
  const uint32_t numbers = params.input_blocks * kTileInputs;
  if constexpr (kNorms<kChange>) {
    const uint32_t pieces = groups_of(numbers, 4 * kNormThreads);
    const auto launch = [&]<uint32_t kPieces>(std::integral_constant<uint32_t, kPieces>) {
      // Sums of segments are those of few rows.
      if constexpr (kChange == Change::kNorm) {
        if (rows > kFewRows) {
          return launch_overlapped(norm_rows<kPieces, kPieces, kChange>, dim3(1, rows),
                                   kNormThreads, 0, stream, params);
        }
      }
      launch_clusters(norm_rows<1, kPieces, kChange>, dim3(kPieces, rows), kPieces, kNormThreads, 0,
                      stream, params);
    };
    if (pieces <= 1) return launch(std::integral_constant<uint32_t, 1>());
    if (pieces <= 2) return launch(std::integral_constant<uint32_t, 2>());
    if (pieces <= 4) return launch(std::integral_constant<uint32_t, 4>());
    launch(std::integral_constant<uint32_t, 8>());
  } else if (rows > kFewRows) {
    const uint32_t vectors = groups_of(numbers, 4 * kManyThreads);
    const auto kernel = vectors <= 1   ? make_tiles_at_once<1, kChange>
                        : vectors <= 2 ? make_tiles_at_once<2, kChange>
                        : vectors <= 4 ? make_tiles_at_once<4, kChange>
                                       : make_tiles_at_once<8, kChange>;
    launch_overlapped(kernel, dim3(1, rows), kManyThreads, 0, stream, params);
  } else {
    const uint32_t pieces = groups_of(numbers, 4 * kPartThreads);
    const uint32_t parts = std::min(pieces, kParts), vectors = groups_of(pieces, parts);
    const auto kernel = vectors <= 1   ? make_tiles_in_parts<1, kChange>
                        : vectors <= 2 ? make_tiles_in_parts<2, kChange>
                                       : make_tiles_in_parts<4, kChange>;
    launch_clusters(kernel, dim3(parts, rows), parts, kPartThreads, 0, stream, params);
  }
}

void launch_tiles(const TileParams& params, uint32_t rows, cudaStream_t stream) {
  if (rows > 0) launch_overlapped(make_tiles, rows, kThreads, 0, stream, params);
}

}  // namespace

bool goes_at_once(const DeviceInput& in, const DeviceTiles& matrix) {
  return in.width % 4 == 0 && is_aligned(in.x) && is_aligned(in.delta) &&
         in.x.rows <= kMostGridRows &&
         (in.norm == nullptr || reinterpret_cast<uintptr_t>(in.norm->weight) % 16 == 0) &&
         fits_at_once(matrix.input_blocks() * kTileInputs, in.x.rows, in.norm != nullptr);
}

void to_tiles(const DeviceInput& in, const DeviceTiles& matrix, const ProductScratch& scratch,
              cudaStream_t stream) {
  TileParams params{};
  params.x = in.x;
  params.delta = in.delta;
  params.delta_sums = in.delta_sums;
  params.delta_scale = in.delta_scale;
  params.width = in.width;
  params.rows_of_route = 1;
  params.tiles = scratch.tiles;
  params.scales = scratch.scales;
  params.tile_rows = scratch.rows;
  params.input_blocks = matrix.input_blocks();
  if (!goes_at_once(in, matrix)) return launch_tiles(params, in.x.rows, stream);
  if (in.x.rows == 0) return;
  if (in.attention != nullptr) {
    attend_on_tensor_cores(
        *in.attention, {scratch.tiles, scratch.scales, scratch.rows, params.input_blocks}, stream);
    return;
  }
  if (in.merge != nullptr) {
    constexpr uint32_t kFewSpans = 8;
    if (in.merge->head_dim % 4 == 0 && in.merge->spans <= kFewSpans && in.merge->first_span == 0) {
      params.merge = *in.merge;
      return launch_at_once<Change::kMerge>(params, in.x.rows, stream);
    }
    merge_spans(*in.merge, stream);
  }
  if (in.norm != nullptr) {
    params.norm = *in.norm;
    return in.delta_sums.planes == nullptr
               ? launch_at_once<Change::kNorm>(params, in.x.rows, stream)
               : launch_at_once<Change::kNormOfSums>(params, in.x.rows, stream);
  }
  if (in.activation != nullptr) {
    params.activation = *in.activation;
    return launch_at_once<Change::kActivation>(params, in.x.rows, stream);
  }
  launch_at_once<Change::kNone>(params, in.x.rows, stream);
}

void to_expert_tiles(DeviceRows x, const ExpertTiles& tiles, uint32_t rows_of_route,
                     const DeviceTiles& shape, const ProductScratch& scratch, cudaStream_t stream) {
  TileParams params{};
  params.x = x;
  params.width = shape.inputs;
  params.routes = tiles.routes;
  params.rows_of_route = rows_of_route;
  params.tiles = scratch.tiles;
  params.scales = scratch.scales;
  params.tile_rows = scratch.rows;
  params.input_blocks = shape.input_blocks();
  launch_tiles(params, tiles.rows(), stream);
}

}  // namespace skein::cuda
