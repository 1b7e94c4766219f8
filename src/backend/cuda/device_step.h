// DeviceStep: a step as the device has it, one record that goes there in one copy. The host keeps
// what ops check their shapes with.
#pragma once

#include <span>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels.h"
#include "backend/host/step.h"

namespace skein::cuda {

class DeviceStep {
 public:
  DeviceStep();
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  // As Backend::begin. The copy is queued; ops that were queued before still see the step of
  // theirs.
  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows, const DevicePeak* before, cudaStream_t stream);

  const HostStep& host() const { return host_; }
  const StepView& view() const { return view_; }
  // Whether tokens below 0 are such of a step before.
  bool awaits() const { return awaits_; }
  // Of 256 tokens, in the longest context.
  uint32_t spans() const;
  // Whether every row is a sequence of its own.
  bool has_single_rows() const;
  // Whether there are rows of sequences of which is_long_prompt says so.
  bool has_prompts(bool are_long) const;
  uint64_t moves() const { return device_.moves(); }

 private:
  void pack(const DevicePeak* before, uint32_t* record) const;

  HostStep host_;
  StepView view_;
  bool awaits_ = false;
  Pinned pinned_;
  Scratch device_;
  cudaEvent_t copied_ = nullptr;  // the record has left pinned_
};

inline const DeviceStep& device_step(const Step& step) {
  return *static_cast<const DeviceStep*>(step.own);
}

}  // namespace skein::cuda
