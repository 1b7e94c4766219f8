// Memory of a CUDA device, and of the host where the device reaches it. What cannot be had is a
// Status; what fails later is a CudaError, or BackendLost where the device is lost by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <stdexcept>
#include <utility>

#include "backend/memory.h"
#include "base/status.h"

namespace skein::cuda {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether an error is said again by whatever is called next: the device is lost.
bool stays(cudaError_t error);

// CudaError or BackendLost with the driver's own words, unless all is well.
void check(cudaError_t error, const char* what);

// As Backend::allocate, of the current device. kResourceExhausted with the size and what is left.
Result<Buffer> allocate_device(size_t bytes);

// Floats that grow, on the device. What was in them is lost when they do.
class Scratch {
 public:
  float* take(size_t floats);
  // Whether take() will leave it where it is.
  bool holds(size_t floats) const { return floats * sizeof(float) <= memory_.bytes(); }
  // How often it has moved.
  uint64_t moves() const { return moves_; }

 private:
  Buffer memory_;
  uint64_t moves_ = 0;
};

// Page-locked memory of the host that grows likewise; whoever grows it has waited for what uses it.
class Pinned {
 public:
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();

  std::byte* take(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace skein::cuda
