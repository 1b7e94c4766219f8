// A real runner behind whose steps others can be started, as behind a device's: what one takes from
// the step before is filled in when its turn comes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/loop/step_runner.h"

namespace skein {

class DeepRunner final : public StepRunner {
 public:
  // `held` goes with it.
  DeepRunner(std::unique_ptr<StepRunner> real, uint32_t depth, std::shared_ptr<void> held)
      : real_(std::move(real)), depth_(depth), held_(std::move(held)) {}

  uint32_t depth() const override { return depth_; }
  std::optional<SamplerScratch> patient_scratch() const override {
    return real_->patient_scratch();
  }
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    started_.push_back({segments, samplers});
  }
  TimeUs finish(const StepOutput& output) override {
    const auto [planned, samplers] = started_.front();
    started_.pop_front();
    std::vector<Segment> segments(planned.begin(), planned.end());
    for (Segment& segment : segments) {
      if (!std::exchange(segment.token_from_previous, false)) continue;
      segment.tokens = {&latest_.at(segment.request.value), 1};
    }
    real_->start(segments, samplers);
    const TimeUs took = real_->finish(output);
    for (size_t i = 0; i < segments.size(); ++i) {
      const std::vector<TokenId>& tokens = output.results[i].tokens;
      if (!tokens.empty()) latest_[segments[i].request.value] = tokens.back();
    }
    return took;
  }

 private:
  struct Started {
    std::span<const Segment> segments;
    std::span<const RequestSampler* const> samplers;
  };
  std::unique_ptr<StepRunner> real_;
  const uint32_t depth_;
  const std::shared_ptr<void> held_;
  std::deque<Started> started_;
  std::map<uint64_t, TokenId> latest_;  // by request
};

}  // namespace skein
