// Rows become tiles of float16 numbers: what is added to them, their norm or activation, the power
// of two and the rounding, by a block of threads for each row, or by a cluster of them.
#include "backend/cuda/activated.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/segment_sums.cuh"
#include "backend/cuda/span_merge.cuh"

namespace skein::cuda {
namespace {

using arithmetic::fma;

// kNormOfSums: what is added to the rows has segments to be added up. kMerge: the rows are yet to
// be made, of spans of attention.
enum class Change : uint8_t { kNone, kNorm, kNormOfSums, kActivation, kMerge };

template <Change kChange>
constexpr bool kNorms = kChange == Change::kNorm || kChange == Change::kNormOfSums;

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
  bool is_late;  // the next kernel begins when the one before has ended, and finds all of its room
};

// The largest of a block's threads, for all of them.
template <uint32_t kBlock>
__device__ uint32_t largest_of(uint32_t x) {
  __shared__ uint32_t of_warp[kBlock / kWarp];
  x = __reduce_max_sync(0xffffffffU, x);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warp[threadIdx.x % (kBlock / kWarp)];
  return __reduce_max_sync(0xffffffffU, x);
}

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

// The numbers of a row as 16 lanes, each of which lies side by side.
template <uint32_t kVectors>
struct alignas(16) LaneRows {
  float at[kLaneThreads][kVectors * 4 * kManyThreads / kLaneThreads + 4];
};

// The sum of a row, or of its squares, of which thread t has, in vector v, the numbers from
// 4 * (v * kManyThreads + t) on.
template <bool kSquares, uint32_t kVectors>
__device__ float sum_in_lanes(uint32_t width, const Outputs<4> (&x)[kVectors],
                              LaneRows<kVectors>& lanes) {
  __shared__ float result;
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) {
    const uint32_t k = 4 * (v * kManyThreads + threadIdx.x);
    for (uint32_t i = 0; i < 4; ++i) {
      lanes.at[(k + i) % kLaneThreads][k / kLaneThreads] = k < width ? x[v].at[i] : 0.0F;
    }
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const float* const own = lanes.at[threadIdx.x % kLaneThreads];
    const uint32_t count = groups_of(width, 4 * kLaneThreads) * 4;  // what is beyond is zero
    float lane = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < count; i += 4) {
      const float4 y = *reinterpret_cast<const float4*>(own + i);
      lane = kSquares ? fma(y.x, y.x, lane) : lane + y.x;
      lane = kSquares ? fma(y.y, y.y, lane) : lane + y.y;
      lane = kSquares ? fma(y.z, y.z, lane) : lane + y.z;
      lane = kSquares ? fma(y.w, y.w, lane) : lane + y.w;
    }
    lane = sum_of_lanes(lane);
    if (threadIdx.x == 0) result = lane;
  }
  __syncthreads();
  return result;
}

// Four numbers of a row, from k on, as they are before any norm, and what was added to them.
struct Loaded {
  Outputs<4> x{}, added{};
};

template <Change kChange>
__device__ Loaded load_numbers(const TileParams& p, uint32_t row, uint32_t k) {
  const float* const x = row_at(p.x, row) + k;
  Loaded out;
  if constexpr (kChange == Change::kMerge) {
    const auto merged =
        merge_query<4>(p.merge, row, k / p.merge.head_dim, k % p.merge.head_dim).value;
    for (uint32_t i = 0; i < 4; ++i) out.x.at[i] = merged[i];
    return out;
  }
  out.x = load_outputs<4>(x);
  if constexpr (kChange == Change::kActivation) {
    Outputs<4> up{};
    if (p.activation.kind != Activation::kGeluTanh) up = load_outputs<4>(x + p.width);
    for (uint32_t i = 0; i < 4; ++i) out.x.at[i] = activated(p.activation, out.x.at[i], up.at[i]);
    return out;
  }
  if (p.delta.data == nullptr) return out;
  if constexpr (kChange == Change::kNormOfSums) {
    out.added = product_at<4>(p.delta_sums, row, k);
  } else {
    out.added = load_outputs<4>(row_at(p.delta, row) + k);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    out.x.at[i] = fma(p.delta_scale, out.added.at[i], out.x.at[i]);
  }
  return out;
}

__device__ inline void store_four(float* to, const Outputs<4>& x) {
  *reinterpret_cast<float4*>(to) = {x.at[0], x.at[1], x.at[2], x.at[3]};
}

// What was added or merged on the way is written where it belongs.
template <Change kChange>
__device__ void store_numbers(const TileParams& p, uint32_t row, uint32_t k, const Loaded& loaded) {
  if constexpr (kChange == Change::kActivation) return;
  if (kChange != Change::kMerge && p.delta.data == nullptr) return;
  store_four(row_at(p.x, row) + k, loaded.x);
  if constexpr (kChange == Change::kNormOfSums) {
    store_four(row_at(p.delta, row) + k, loaded.added);
  }
}

// All of a thread's numbers are under way before the first is written.
template <Change kChange, uint32_t kVectors, class First>
__device__ void load_all(const TileParams& p, uint32_t row, const First& first_of,
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

template <uint32_t kVectors>
__device__ void norm_numbers(const TileParams& p, const Outputs<4> (&weights)[kVectors],
                             Outputs<4> (&x)[kVectors]) {
  const auto count = static_cast<float>(p.width);
  const bool centers = p.norm.kind == NormKind::kLayer;
  __shared__ LaneRows<kVectors> lanes;
  if (centers) {
    const float mean = sum_in_lanes<false>(p.width, x, lanes) / count;
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v) {
      for (float& y : x[v].at) y = y - mean;
    }
  }
  const float squares = sum_in_lanes<true>(p.width, x, lanes);
  const float scale = 1.0F / sqrtf(squares / count + p.norm.epsilon);
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) {
    const uint32_t k = 4 * (v * kManyThreads + threadIdx.x);
    for (uint32_t i = 0; i < 4; ++i) {
      float y = x[v].at[i] * scale;
      if (p.norm.weight != nullptr) y = y * weights[v].at[i];
      if (p.norm.bias != nullptr && k < p.width) y = y + p.norm.bias[k + i];
      x[v].at[i] = k < p.width ? y : 0.0F;
    }
  }
}

// The largest magnitude of a thread's numbers; those beyond the row are zeros.
template <uint32_t kVectors>
__device__ uint32_t largest_of_thread(const Outputs<4> (&x)[kVectors]) {
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

// So many blocks of threads share a processor: it takes them to keep memory busy.
template <uint32_t kVectors, Change kChange>
constexpr uint32_t kRowsAtOnce = kVectors > 4 || kChange == Change::kNormOfSums ? 2
                                 : kVectors > 2 && kChange == Change::kNorm     ? 2
                                                                                : 3;

template <uint32_t kVectors, Change kChange>
__global__ void __launch_bounds__(kManyThreads, (kRowsAtOnce<kVectors, kChange>))
    make_tiles_at_once(const __grid_constant__ TileParams p) {
  const uint32_t row = blockIdx.x;
  const auto first_of = [](uint32_t v) { return 4 * (v * kManyThreads + threadIdx.x); };
  Outputs<4> weights[kVectors] = {}, x[kVectors] = {};
  if (!kNorms<kChange> || !p.is_late) let_next_kernel_begin();
  if (kNorms<kChange> && p.norm.weight != nullptr) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v) {
      if (first_of(v) < p.width) weights[v] = load_outputs<4>(p.norm.weight + first_of(v));
    }
  }
  wait_for_kernel_before();
  if (kNorms<kChange> && p.is_late) let_next_kernel_begin();
  load_all<kChange>(p, row, first_of, x);
  if constexpr (kNorms<kChange>) norm_numbers<kVectors>(p, weights, x);
  const uint32_t largest = largest_of<kManyThreads>(largest_of_thread(x));
  const int32_t exponent = arithmetic::f16_exponent(largest);
  const float scale = arithmetic::power_of_two(exponent);
  if (threadIdx.x == 0) p.scales[row] = arithmetic::power_of_two(-exponent);
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) put_in_tiles(p, row, first_of(v), x[v], scale);
}

// Where a row has no norm all that its parts share is the largest number. So many blocks of threads
// make a cluster and take a part each: one alone takes as long for the activations of a row as a
// product for a third of its weights.
constexpr uint32_t kParts = 8, kPartThreads = 256;

template <uint32_t kVectors, Change kChange>
__global__ void __cluster_dims__(kParts, 1, 1) __launch_bounds__(kPartThreads, 4)
    make_tiles_in_parts(const __grid_constant__ TileParams p) {
  static_assert(!kNorms<kChange>);
  __shared__ uint32_t largest_of_parts[kParts];
  const uint32_t part = blockIdx.x, row = blockIdx.y;
  const auto first_of = [part](uint32_t v) {
    return 4 * ((v * kParts + part) * kPartThreads + threadIdx.x);
  };
  arrive_at_cluster();
  let_next_kernel_begin();
  wait_for_kernel_before();
  Outputs<4> x[kVectors] = {};
  load_all<kChange>(p, row, first_of, x);
  uint32_t largest = largest_of<kPartThreads>(largest_of_thread(x));
  wait_for_cluster();  // all of its blocks have begun: their memory is there
  if (threadIdx.x < kParts) put_in_cluster(&largest_of_parts[part], threadIdx.x, largest);
  arrive_at_cluster();
  wait_for_cluster();
  for (const uint32_t of_part : largest_of_parts) largest = max(largest, of_part);
  const int32_t exponent = arithmetic::f16_exponent(largest);
  const float scale = arithmetic::power_of_two(exponent);
  if (part == 0 && threadIdx.x == 0) p.scales[row] = arithmetic::power_of_two(-exponent);
#pragma unroll
  for (uint32_t v = 0; v < kVectors; ++v) put_in_tiles(p, row, first_of(v), x[v], scale);
}

constexpr uint32_t kFewRows = 132;

bool is_aligned(const DeviceRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
}

// Whether rows of so many numbers, with the zeros at the end, fit into registers.
bool fits_at_once(uint32_t numbers, uint32_t rows, bool normed) {
  // A norm has them in shared memory, too; few rows have clusters.
  const uint32_t threads = normed            ? 4 * kManyThreads
                           : rows > kFewRows ? 8 * kManyThreads
                                             : 4 * kParts * kPartThreads;
  return numbers <= 4 * threads;
}

template <Change kChange>
void launch_at_once(const TileParams& params, uint32_t rows, cudaStream_t stream) {
  const uint32_t vectors = groups_of(params.input_blocks * kTileInputs, 4 * kManyThreads);
  const auto launch = [&](auto* kernel) {
    launch_overlapped(kernel, rows, kManyThreads, 0, stream, params);
  };
  if (vectors <= 1) return launch(make_tiles_at_once<1, kChange>);
  if constexpr (kNorms<kChange>) {
    launch(vectors <= 2 ? make_tiles_at_once<2, kChange> : make_tiles_at_once<4, kChange>);
  } else if (rows > kFewRows) {
    launch(vectors <= 2   ? make_tiles_at_once<2, kChange>
           : vectors <= 4 ? make_tiles_at_once<4, kChange>
                          : make_tiles_at_once<8, kChange>);
  } else {
    constexpr uint32_t kEach = kParts * kPartThreads / kManyThreads;
    const auto kernel = vectors <= kEach       ? make_tiles_in_parts<1, kChange>
                        : vectors <= 2 * kEach ? make_tiles_in_parts<2, kChange>
                                               : make_tiles_in_parts<4, kChange>;
    launch_overlapped(kernel, dim3(kParts, rows), kPartThreads, 0, stream, params);
  }
}

void launch_tiles(const TileParams& params, uint32_t rows, cudaStream_t stream) {
  if (rows > 0) launch_overlapped(make_tiles, rows, kThreads, 0, stream, params);
}

}  // namespace

bool goes_at_once(const DeviceInput& in, const DeviceTiles& matrix) {
  return in.width % 4 == 0 && is_aligned(in.x) && is_aligned(in.delta) &&
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
  constexpr uint32_t kFewest = 16;
  params.is_late = matrix.format.bits == 16 && in.x.rows <= kFewest;
  if (!goes_at_once(in, matrix)) return launch_tiles(params, in.x.rows, stream);
  if (in.x.rows == 0) return;
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
