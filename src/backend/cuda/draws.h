// Tokens drawn on the device (backend/draw.h says what a draw is).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/peaks.h"
#include "backend/draw.h"

namespace skein::cuda {

struct ListedToken {
  uint32_t id;
  float logit;
};

// What draws work with: the weights of each row's parts, and the tokens of each row that reach the
// first step, of which there may be more than the list takes; `listed`, how many, is 0 before and
// after.
struct DrawScratch {
  static constexpr uint32_t kMostListed = 2048;  // of a row
  uint64_t* parts = nullptr;
  ListedToken* list = nullptr;
  uint32_t* listed = nullptr;

  // Of a row.
  SKEIN_HOST_DEVICE static uint32_t parts_of(uint32_t width) {
    return static_cast<uint32_t>((width + drawing::kPartTokens - 1) / drawing::kPartTokens);
  }
};

// Behind find_peaks(): the index of peaks[i], and of its copy, becomes the token that draws[i]
// draws, unless that is the largest or the row is not sound. `draws` are of the device.
void draw_from_rows(DeviceRows rows, const Draw* draws, const DrawScratch& scratch,
                    DevicePeak* peaks, DevicePeak* copies, cudaStream_t stream);

}  // namespace skein::cuda
