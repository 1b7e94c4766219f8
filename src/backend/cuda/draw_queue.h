// CudaDrawQueue: tokens drawn from rows behind the ops that make them. What is found goes to where
// the next step's tokens come from, and to the host.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/draws.h"
#include "backend/cuda/peaks.h"

namespace skein::cuda {

class CudaDrawQueue final : public DrawQueue {
 public:
  static Result<std::unique_ptr<DrawQueue>> make(size_t rows, size_t width, uint32_t searches,
                                                 cudaStream_t stream);
  ~CudaDrawQueue() override;

  void find(Rows rows, std::span<const Draw> draws) override;
  void take(std::span<VocabularyScan::Argmax> out) override;
  uint64_t pause_ns() const override { return pause_ns_; }
  // Behind the copy of a step's record: what is queued from here on is the step.
  void note_step() const;

  // What the latest search finds, on the device.
  const DevicePeak* latest() const { return peaks_; }
  bool holds(size_t rows, size_t width) const { return rows <= rows_ && width <= width_; }

 private:
  // What a search finds, once its event has come.
  struct Search {
    Pinned copies;
    Pinned draws;                 // on their way to the device
    cudaEvent_t begun = nullptr;  // its step
    cudaEvent_t found = nullptr;
    size_t rows = 0;
  };

  CudaDrawQueue(size_t rows, size_t width, uint32_t searches, cudaStream_t stream);
  // Sets what is on the device; the bytes that it takes.
  size_t lay_out(std::byte* memory);

  const size_t rows_, width_;
  const cudaStream_t stream_;
  Buffer memory_;
  DevicePeak* peaks_ = nullptr;
  PeakScratch scratch_;
  Draw* draws_ = nullptr;  // of the latest search
  DrawScratch draw_scratch_;
  std::vector<Search> searches_;  // one more than there may be: the one before is still looked at
  size_t oldest_ = 0, under_way_ = 0;
  uint64_t pause_ns_ = 0;
};

}  // namespace skein::cuda
