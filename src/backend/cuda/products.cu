// Products as their callers see them: the kernels for a matrix's codes, sums of segments, and
// routes in the order of experts.
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product_params.h"
#include "backend/cuda/segment_sums.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kMostTokens = 256;  // of a tile

__global__ void __launch_bounds__(kThreads)
    add_segment_sums(const __grid_constant__ SegmentSums sums, DeviceRows out) {
  const uint32_t n = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (n < sums.outputs) row_at(out, row)[n] = product_at<1>(sums, row, n).at[0];
}

const PackedProducts& products_of(const DeviceTiles& matrix) {
  const TileFormat& format = matrix.format;
  if (format.short_scales) return products_of_short_scales(format.low);
  if (format.bits == 16) return products_of_numbers();
  return format.bits == 4 ? products_of_4_bits(format.halves, format.has_table)
                          : products_of_8_bits(format.halves);
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
  for (const PackedProducts* products :
       {&products_of_short_scales(true), &products_of_short_scales(false),
        &products_of_4_bits(false, false), &products_of_4_bits(true, false),
        &products_of_4_bits(false, true), &products_of_8_bits(false), &products_of_8_bits(true),
        &products_of_numbers()}) {
    if (const cudaError_t error = products->set_up(); error != cudaSuccess) return error;
  }
  return set_up_strips();
}

uint32_t tiled_rows(const DeviceTiles& matrix, uint32_t rows, uint32_t processors) {
  if (!is_streamed(rows)) return groups_of(rows, kMostTokens) * kMostTokens;
  // The kernels of codes for more rows take 32 at least.
  if (matrix.format.bits < 16 && rows <= 32 && !fits_strips(matrix, rows, processors)) return 32;
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
  const bool is_apart = is_streamed(out.rows) && matrix.segments > 1;
  if (is_apart) params.sums = scratch.sums;
  if (fits_strips(matrix, out.rows, processors)) {
    multiply_strips(params, processors, stream);
  } else {
    products_of(matrix).multiply(params, processors, stream);
  }
  if (!is_apart) return {};
  const auto* const scales = reinterpret_cast<const float*>(matrix.blocks + matrix.block_bytes());
  return {scratch.sums, scales, scratch.scales, bias, matrix.segments, out.rows, matrix.outputs};
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
  products_of(shape).multiply_experts(params, tiles.tile_rows, processors, stream);
}

}  // namespace skein::cuda
