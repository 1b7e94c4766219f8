#include "backend/cuda/device_memory.h"

#include <fmt/format.h>
#include <string>

#include "backend/cuda/cuda_device.h"
#include "backend/host/memory.h"

namespace skein::cuda {
namespace {

void free_device(void* data, size_t) {
  // Waits for what is queued. An error is that of an op before, which somebody else reports.
  static_cast<void>(cudaFree(data));
}

// A power of two at least, so that memory that grows step by step is taken a few times.
size_t rounded_up(size_t bytes) {
  size_t rounded = 4096;
  while (rounded < bytes) rounded *= 2;
  return rounded;
}

}  // namespace

bool stays(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorMpsRpcFailure:
    case cudaErrorExternalDevice:
    case cudaErrorNoDevice:
    case cudaErrorUnknown:
      return true;
    default:
      break;
  }
  // Toolkits before 13 have no names for these: an error that was contained to this process, and
  // memory of tensor cores that leaked.
  constexpr int kContained = 226, kTensorMemoryLeak = 721;
  return error == kContained || error == kTensorMemoryLeak;
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // what can be recovered from is told once
  std::string words = fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error));
  if (!stays(error)) throw CudaError(words);
  set_current_device_lost();
  throw BackendLost(words);
}

Result<Buffer> allocate_device(size_t bytes) {
  if (bytes == 0) return Buffer();
  void* data = nullptr;
  cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // this error does not stay
    size_t left = 0, total = 0;
    check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    return resource_exhausted("{} bytes of device memory cannot be had, {} are left", bytes, left);
  }
  check(error, "cudaMalloc");
  Buffer buffer(data, bytes, free_device);
  check(cudaMemset(data, 0, bytes), "cudaMemset");
  // It is the default stream's, and those of backends do not wait for that one.
  check(cudaStreamSynchronize(nullptr), "cudaMemset");
  return buffer;
}

float* Scratch::take(size_t floats) {
  if (floats * sizeof(float) > memory_.bytes()) {
    memory_ = Buffer();  // not both at a time
    ++moves_;            // even where no other is had: graphs name the old one
    auto grown = allocate_device(rounded_up(floats * sizeof(float)));
    if (!grown.ok()) throw CudaError(grown.message());
    memory_ = std::move(*grown);
  }
  return raw(memory_.floats());
}

Pinned::~Pinned() {
  static_cast<void>(cudaFreeHost(data_));
}

std::byte* Pinned::take(size_t bytes) {
  if (bytes > bytes_) {
    static_cast<void>(cudaFreeHost(data_));
    data_ = nullptr;
    bytes_ = 0;
    void* data = nullptr;
    check(cudaMallocHost(&data, rounded_up(bytes)), "cudaMallocHost");
    data_ = static_cast<std::byte*>(data);
    bytes_ = rounded_up(bytes);
  }
  return data_;
}

}  // namespace skein::cuda
