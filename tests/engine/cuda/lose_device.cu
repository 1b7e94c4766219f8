#include <cuda_runtime_api.h>

#include "engine/cuda/lose_device.h"

namespace skein::testing {
namespace {

__global__ void write_nowhere(int* nowhere) {
  *nowhere = 1;
}

__global__ void trap() {
  __trap();
}

}  // namespace

const char* lose_device(Fault fault) {
  if (fault == Fault::kTrap) {
    trap<<<1, 1, 0, cudaStreamPerThread>>>();
  } else {
    write_nowhere<<<1, 1, 0, cudaStreamPerThread>>>(reinterpret_cast<int*>(0x10));
  }
  return cudaGetErrorString(cudaStreamSynchronize(cudaStreamPerThread));
}

}  // namespace skein::testing
