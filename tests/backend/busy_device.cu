#include <cuda_runtime_api.h>

#include "backend/busy_device.h"

namespace skein::testing {
namespace {

__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

}  // namespace

void BusyDevice::keep_busy(uint64_t seed) {
  constexpr uint32_t kAtOnce = 8;
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
  const auto below = [&](uint64_t end) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>((seed >> 33) % end);
  };
  while (!stops_) {
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t blocks = 1 + below(200), threads = 32U << below(6);
      spin<<<blocks, threads, below(48) * 1024, stream>>>(below(20'000));
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess) break;
    count_ += kAtOnce;
  }
  static_cast<void>(cudaStreamDestroy(stream));
}

}  // namespace skein::testing
