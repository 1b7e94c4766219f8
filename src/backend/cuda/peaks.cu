#include "backend/cuda/launch.cuh"
#include "backend/cuda/peaks.h"

namespace skein::cuda {
namespace {

constexpr uint32_t kNumbers = 8192;  // of a block of threads

// What is not a number is none of them; subnormals are zero, and zeros are equal.
__device__ uint64_t key_of(float x, uint32_t index) {
  uint32_t bits = arithmetic::bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > arithmetic::kInfinityBits) return 0;
  if (magnitude < 0x00800000U) bits = 0;
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{ordered} << 32 | ~index;
}

__device__ DevicePeak larger_of(const DevicePeak& a, const DevicePeak& b) {
  return {a.key > b.key ? a.key : b.key, a.not_finite | b.not_finite, 0};
}

// Of a warp's threads, for all of them.
__device__ DevicePeak largest_of_warp(DevicePeak peak) {
  for (uint32_t half = kWarp / 2; half > 0; half /= 2) {
    const uint64_t key = __shfl_xor_sync(0xffffffffU, peak.key, half);
    peak.key = key > peak.key ? key : peak.key;
  }
  peak.not_finite = __any_sync(0xffffffffU, peak.not_finite != 0) ? 1 : 0;
  return peak;
}

// Of a block of threads, for its first warp.
__device__ DevicePeak largest_of_block(const DevicePeak& own) {
  __shared__ DevicePeak of_warp[kThreads / kWarp];
  const DevicePeak peak = largest_of_warp(own);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = peak;
  __syncthreads();
  return largest_of_warp(of_warp[threadIdx.x % (kThreads / kWarp)]);
}

__device__ DevicePeak load_peak(const DevicePeak* from) {
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(from));
  return {uint64_t{words.y} << 32 | words.x, words.z, 0};
}

// The block of threads that is the last with its part of a row puts the parts together.
__global__ void __launch_bounds__(kThreads)
    find_peaks_of_rows(DeviceRows rows, PeakScratch scratch, DevicePeak* peaks,
                       DevicePeak* copies) {
  const float* const row = row_at(rows, blockIdx.y);
  const uint32_t first = blockIdx.x * kNumbers, end = min(first + kNumbers, rows.width);
  DevicePeak largest;
  const auto see = [&](float x, uint32_t i) {
    if (!(x < arithmetic::kInfinity)) largest.not_finite = 1;
    const uint64_t key = key_of(x, i);
    largest.key = key > largest.key ? key : largest.key;
  };
  if (reinterpret_cast<uintptr_t>(row) % 16 == 0 && end % 4 == 0) {
#pragma unroll 4
    for (uint32_t i = first + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
      const float4 x = *reinterpret_cast<const float4*>(row + i);
      see(x.x, i), see(x.y, i + 1), see(x.z, i + 2), see(x.w, i + 3);
    }
  } else {
    for (uint32_t i = first + threadIdx.x; i < end; i += kThreads) see(row[i], i);
  }
  largest = largest_of_block(largest);
  if (threadIdx.x >= kWarp) return;
  DevicePeak* const parts = scratch.parts + size_t{blockIdx.y} * gridDim.x;
  uint32_t searched = 0;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = largest;
    __threadfence();
    searched = atomicAdd(&scratch.searched[blockIdx.y], 1);
  }
  if (__shfl_sync(0xffffffffU, searched, 0) + 1 < gridDim.x) return;
  __threadfence();
  DevicePeak all;
  for (uint32_t part = threadIdx.x; part < gridDim.x; part += kWarp) {
    all = larger_of(all, load_peak(parts + part));
  }
  all = largest_of_warp(all);
  if (threadIdx.x != 0) return;
  scratch.searched[blockIdx.y] = 0;
  peaks[blockIdx.y] = all;
  copies[blockIdx.y] = all;
}

}  // namespace

uint32_t PeakScratch::parts_of(uint32_t width) {
  return groups_of(width, kNumbers);
}

void find_peaks(DeviceRows rows, const PeakScratch& scratch, DevicePeak* peaks, DevicePeak* copies,
                cudaStream_t stream) {
  if (rows.rows == 0 || rows.width == 0) return;
  const dim3 grid(PeakScratch::parts_of(rows.width), rows.rows);
  find_peaks_of_rows<<<grid, kThreads, 0, stream>>>(rows, scratch, peaks, copies);
}

}  // namespace skein::cuda
