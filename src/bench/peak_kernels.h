// Loops that do nothing but read, or nothing but multiply and add, as fast as this machine can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::bench {

// `bytes` is a multiple of this.
inline constexpr uint64_t kReadStride = 512;

// Reads every byte once; the result depends on all of them.
uint64_t read_all(const std::byte* memory, uint64_t bytes);

struct PeakKernel {
  const char* name;
  uint64_t operations_per_iteration;
  uint64_t (*run)(uint64_t iterations);  // its result means nothing, but depends on the work
};

// Those whose instructions this machine has; at least one.
std::span<const PeakKernel> peak_kernels();

}  // namespace skein::bench
