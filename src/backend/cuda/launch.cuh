// What kernels share: how elements and rows become threads, and the tree that ends a sum.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/arithmetic.h"
#include "backend/cuda/kernels.h"

namespace skein::cuda {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kMostGridRows = 65535;  // what a grid's second dimension can be
inline constexpr uint32_t kLaneThreads = arithmetic::kLanes;

__device__ inline float* row_at(const DeviceRows& x, uint32_t row) {
  return x.data + row * x.stride;
}

// Lanes::sum() of 16 threads side by side, of which each has one lane; all of a warp have to call
// it. Each gets the sum: which of two summands is the first makes no difference to it.
__device__ inline float sum_of_lanes(float lane) {
  for (uint32_t half = kLaneThreads / 2; half > 0; half /= 2) {
    lane = lane + __shfl_xor_sync(0xffffffffU, lane, half);
  }
  return lane;
}

__host__ __device__ constexpr uint32_t groups_of(uint32_t count, uint32_t each) {
  return (count + each - 1) / each;
}

// Shared memory of a processor, and what a block of threads takes of it beside its own.
inline constexpr uint32_t kProcessorBytes = 233472, kBlockOverhead = 1024;

// Where `blocks` blocks of threads, of which `share` fit on a processor, are fewer than could run
// at once: so much shared memory that no more fit than each processor has to take. Otherwise those
// that begin while another kernel still runs gather on the processors that are free first, and
// others have none.
inline uint32_t spread_bytes(uint32_t blocks, uint32_t share, uint32_t processors) {
  const uint32_t each = groups_of(blocks, processors);
  return each >= share ? 0 : kProcessorBytes / (each + 1) + 1 - kBlockOverhead;
}

// A kernel that may begin before the one before it in the stream has ended (hopper.cuh); every
// `cluster` blocks of threads that follow each other are one.
template <class... Params, class... Values>
void launch_clusters(void (*kernel)(Params...), dim3 grid, uint32_t cluster, uint32_t threads,
                     size_t shared_bytes, cudaStream_t stream, const Values&... values) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  // An error is seen by whoever asks for the last one.
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, Params(values)...));
}
template <class... Params, class... Values>
void launch_overlapped(void (*kernel)(Params...), dim3 grid, uint32_t threads, size_t shared_bytes,
                       cudaStream_t stream, const Values&... values) {
  launch_clusters(kernel, grid, 1, threads, shared_bytes, stream, values...);
}

template <class Fn>
__global__ void for_each_element(uint32_t rows, uint32_t width, Fn fn) {
  const uint32_t k = blockIdx.x * kThreads + threadIdx.x;
  if (k >= width) return;
  for (uint32_t row = blockIdx.y; row < rows; row += gridDim.y) fn(row, k);
}

// fn(row, k) by a thread of its own for every element of [rows, width].
template <class Fn>
void launch_elements(uint32_t rows, uint32_t width, cudaStream_t stream, const Fn& fn) {
  if (rows == 0 || width == 0) return;
  const dim3 grid(groups_of(width, kThreads), std::min(rows, kMostGridRows));
  for_each_element<<<grid, kThreads, 0, stream>>>(rows, width, fn);
}

template <class Fn>
__global__ void for_each_warp(uint32_t items, Fn fn) {
  const uint32_t item = (blockIdx.x * kThreads + threadIdx.x) / kWarp;
  if (item < items) fn(item, threadIdx.x % kWarp);
}

// fn(item, thread) by a warp for every item.
template <class Fn>
void launch_warps(uint32_t items, cudaStream_t stream, const Fn& fn) {
  if (items == 0) return;
  for_each_warp<<<groups_of(items, kThreads / kWarp), kThreads, 0, stream>>>(items, fn);
}

}  // namespace skein::cuda
