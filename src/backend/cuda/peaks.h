// The largest number of each row, found on the device.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"

namespace skein::cuda {

// A larger key is a larger number, or a lower index of the same; 0: the row has no numbers.
struct DevicePeak {
  uint64_t key = 0;
  uint32_t not_finite = 0;  // there is a NaN or +inf
  uint32_t unused = 0;

  uint32_t index() const { return ~static_cast<uint32_t>(key); }
  // Bits of a float.
  uint32_t value() const {
    const auto ordered = static_cast<uint32_t>(key >> 32);
    return ordered >> 31 != 0 ? ordered & 0x7fffffffU : ~ordered;
  }
};

// peaks[i] of row i; they are of the device, as `rows` are.
void find_peaks(DeviceRows rows, DevicePeak* peaks, cudaStream_t stream);

}  // namespace skein::cuda
