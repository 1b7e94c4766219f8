// CudaPeakQueue: searches for the largest of rows behind the ops that make them. What they find
// goes to where the next step's tokens come from, and to the host.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/peaks.h"

namespace skein::cuda {

class CudaPeakQueue final : public PeakQueue {
 public:
  static Result<std::unique_ptr<PeakQueue>> make(size_t rows, size_t width, uint32_t searches,
                                                 cudaStream_t stream);
  ~CudaPeakQueue() override;

  void find(Rows rows) override;
  void take(std::span<VocabularyScan::Argmax> out) override;

  // What the latest search finds, on the device.
  const DevicePeak* latest() const { return peaks_; }
  bool holds(size_t rows, size_t width) const { return rows <= rows_ && width <= width_; }

 private:
  // What a search finds, once its event has come.
  struct Search {
    Pinned copies;
    cudaEvent_t found = nullptr;
    size_t rows = 0;
  };

  CudaPeakQueue(size_t rows, size_t width, uint32_t searches, Buffer memory, cudaStream_t stream);

  const size_t rows_, width_;
  const cudaStream_t stream_;
  Buffer memory_;
  DevicePeak* peaks_;
  PeakScratch scratch_;
  std::vector<Search> searches_;
  size_t oldest_ = 0, under_way_ = 0;
};

}  // namespace skein::cuda
