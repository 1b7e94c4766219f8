// The largest number of each row, found on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"

namespace skein::cuda {

// A larger key is a larger number, or a lower index of the same; 0: the row has no numbers.
struct DevicePeak {
  uint64_t key = 0;
  uint32_t not_finite = 0;  // there is a NaN or +inf
  uint32_t unused = 0;

  SKEIN_HOST_DEVICE uint32_t index() const { return ~static_cast<uint32_t>(key); }
  // Bits of a float.
  SKEIN_HOST_DEVICE uint32_t value() const {
    const auto ordered = static_cast<uint32_t>(key >> 32);
    return ordered >> 31 != 0 ? ordered & 0x7fffffffU : ~ordered;
  }
};

// What a search works with: of each row how many of its parts have been searched, which is 0 before
// and after, and what they gave.
struct PeakScratch {
  uint32_t* searched = nullptr;
  DevicePeak* parts = nullptr;

  // Of a row.
  static uint32_t parts_of(uint32_t width);
};

// peaks[i] of row i; they are of the device, as `rows` are. `copies` is memory of the host that the
// device reaches and gets the same.
void find_peaks(DeviceRows rows, const PeakScratch& scratch, DevicePeak* peaks, DevicePeak* copies,
                cudaStream_t stream);

}  // namespace skein::cuda
