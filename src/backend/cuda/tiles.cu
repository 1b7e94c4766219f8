// Rows become tiles of float16 numbers: what is added to them, their norm or activation, the power
// of two and the rounding, by one block of threads for each row.
#include "backend/cuda/activated.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/products.h"

namespace skein::cuda {
namespace {

using arithmetic::fma;

// Floats that are in shared memory at once; a multiple of the threads of a block.
constexpr uint32_t kChunk = 4096;

enum class Change : uint8_t { kNone, kNorm, kActivation };

struct TileParams {
  DeviceRows x;
  DeviceRows delta;
  float delta_scale;
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

// A sum over value(k), k < width, or over its square. The threads read, each the same elements in
// every pass; 16 of them are the lanes.
template <uint32_t kBlock, bool kSquares, class Value>
__device__ float sum_of_row(uint32_t width, const Value& value) {
  __shared__ float chunk[kChunk];
  __shared__ float result;
  float lane = 0;
  for (uint32_t first = 0; first < width; first += kChunk) {
    const uint32_t count = groups_of(min(kChunk, width - first), kLaneThreads) * kLaneThreads;
    for (uint32_t i = threadIdx.x; i < count; i += kBlock) {
      chunk[i] = first + i < width ? value(first + i) : 0.0F;
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
#pragma unroll 16
      for (uint32_t i = threadIdx.x % kLaneThreads; i < count; i += kLaneThreads) {
        lane = kSquares ? fma(chunk[i], chunk[i], lane) : lane + chunk[i];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < kWarp) {
    const float sum = sum_of_lanes(lane);
    if (threadIdx.x == 0) result = sum;
  }
  __syncthreads();
  const float sum = result;
  __syncthreads();  // before the next one
  return sum;
}

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

// The numbers of a row as they are multiplied.
template <uint32_t kBlock, Change kChange>
struct TileRow {
  float* x;
  const TileParams& p;
  float mean = 0;
  float scale = 1;

  __device__ void measure() {
    const auto count = static_cast<float>(p.width);
    const bool centers = p.norm.kind == NormKind::kLayer;
    if (centers) {
      mean = sum_of_row<kBlock, false>(p.width, [&](uint32_t k) { return x[k]; }) / count;
    }
    const float squares =
        sum_of_row<kBlock, true>(p.width, [&](uint32_t k) { return centers ? x[k] - mean : x[k]; });
    scale = 1.0F / sqrtf(squares / count + p.norm.epsilon);
  }
  __device__ float at(uint32_t k) const {
    if constexpr (kChange == Change::kActivation) {
      const bool gated = p.activation.kind != Activation::kGeluTanh;
      return activated(p.activation, x[k], gated ? x[p.width + k] : 0.0F);
    }
    if constexpr (kChange == Change::kNone) return x[k];
    float y = (p.norm.kind == NormKind::kLayer ? x[k] - mean : x[k]) * scale;
    if (p.norm.weight != nullptr) y = y * p.norm.weight[k];
    if (p.norm.bias != nullptr) y = y + p.norm.bias[k];
    return y;
  }
};

template <uint32_t kBlock, Change kChange>
__global__ void __launch_bounds__(kBlock) make_tiles(const __grid_constant__ TileParams p) {
  const uint32_t row = blockIdx.x;
  let_next_kernel_begin();
  wait_for_kernel_before();
  const uint32_t route = p.routes == nullptr ? row : p.routes[row];
  if (route == UINT32_MAX) return;
  TileRow<kBlock, kChange> own{row_at(p.x, route / p.rows_of_route), p};
  if (p.delta.data != nullptr) {
    const float* const delta = row_at(p.delta, row);
    for (uint32_t k = threadIdx.x; k < p.width; k += kBlock) {
      own.x[k] = fma(p.delta_scale, delta[k], own.x[k]);
    }
  }
  if constexpr (kChange == Change::kNorm) own.measure();
  uint32_t largest = 0;
  for (uint32_t k = threadIdx.x; k < p.width; k += kBlock) {
    largest = max(largest, arithmetic::bits_of_float(own.at(k)) & 0x7fffffffU);
  }
  const int32_t exponent = arithmetic::f16_exponent(largest_of<kBlock>(largest));
  const float scale = arithmetic::power_of_two(exponent);
  if (threadIdx.x == 0) p.scales[row] = arithmetic::power_of_two(-exponent);
  for (uint32_t k = threadIdx.x; k < p.input_blocks * kTileInputs; k += kBlock) {
    std::byte* const block = p.tiles + size_t{k / kTileInputs} * p.tile_rows * (2 * kTileInputs);
    const uint16_t value = k < p.width ? f16_of(own.at(k) * scale) : uint16_t{0};
    *reinterpret_cast<uint16_t*>(block + offset_in_tile(row, k % kTileInputs)) = value;
  }
}

template <Change kChange>
void launch_tiles(const TileParams& params, uint32_t rows, cudaStream_t stream) {
  constexpr uint32_t kFewRows = 132;
  if (rows == 0) return;
  if (rows <= kFewRows) {
    launch_overlapped(make_tiles<1024, kChange>, rows, 1024, 0, stream, params);
  } else {
    launch_overlapped(make_tiles<256, kChange>, rows, 256, 0, stream, params);
  }
}

}  // namespace

void to_tiles(const DeviceInput& in, const DeviceTiles& matrix, const ProductScratch& scratch,
              cudaStream_t stream) {
  TileParams params{in.x,
                    in.delta,
                    in.delta_scale,
                    {},
                    {},
                    in.width,
                    nullptr,
                    1,
                    scratch.tiles,
                    scratch.scales,
                    scratch.rows,
                    matrix.input_blocks()};
  if (in.norm != nullptr) {
    params.norm = *in.norm;
    return launch_tiles<Change::kNorm>(params, in.x.rows, stream);
  }
  if (in.activation != nullptr) {
    params.activation = *in.activation;
    return launch_tiles<Change::kActivation>(params, in.x.rows, stream);
  }
  launch_tiles<Change::kNone>(params, in.x.rows, stream);
}

void to_expert_tiles(DeviceRows x, const ExpertTiles& tiles, uint32_t rows_of_route,
                     const DeviceTiles& shape, const ProductScratch& scratch, cudaStream_t stream) {
  const TileParams params{x,
                          {},
                          1,
                          {},
                          {},
                          shape.inputs,
                          tiles.routes,
                          rows_of_route,
                          scratch.tiles,
                          scratch.scales,
                          scratch.rows,
                          shape.input_blocks()};
  launch_tiles<Change::kNone>(params, tiles.rows(), stream);
}

}  // namespace skein::cuda
