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

__global__ void __launch_bounds__(kThreads) find_peaks_of_rows(DeviceRows rows, DevicePeak* peaks) {
  const float* const row = row_at(rows, blockIdx.y);
  const uint32_t first = blockIdx.x * kNumbers, end = min(first + kNumbers, rows.width);
  uint64_t largest = 0;
  bool not_finite = false;
#pragma unroll 8
  for (uint32_t i = first + threadIdx.x; i < end; i += kThreads) {
    const float x = row[i];
    not_finite = not_finite || !(x < arithmetic::kInfinity);
    const uint64_t key = key_of(x, i);
    largest = key > largest ? key : largest;
  }
  for (uint32_t half = kWarp / 2; half > 0; half /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffU, largest, half);
    largest = other > largest ? other : largest;
  }
  not_finite = __any_sync(0xffffffffU, not_finite);
  if (threadIdx.x % kWarp != 0) return;
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMax(reinterpret_cast<unsigned long long*>(&peaks[blockIdx.y].key), largest);
  if (not_finite) atomicOr(&peaks[blockIdx.y].not_finite, 1U);
}

}  // namespace

void find_peaks(DeviceRows rows, DevicePeak* peaks, cudaStream_t stream) {
  if (rows.rows == 0) return;
  static_cast<void>(cudaMemsetAsync(peaks, 0, rows.rows * sizeof(DevicePeak), stream));
  const dim3 grid(groups_of(rows.width, kNumbers), rows.rows);
  find_peaks_of_rows<<<grid, kThreads, 0, stream>>>(rows, peaks);
}

}  // namespace skein::cuda
