// A real runner whose outputs come with guesses.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/loop/step_runner.h"

namespace skein {

class DraftingRunner final : public StepRunner {
 public:
  // Guesses what follows the token at a position of a request.
  using Guess = std::function<std::vector<TokenId>(RequestId request, uint32_t position)>;

  DraftingRunner(std::unique_ptr<StepRunner> real, Guess guess)
      : real_(std::move(real)), guess_(std::move(guess)) {}

  std::optional<SamplerScratch> patient_scratch() const override {
    return real_->patient_scratch();
  }
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    segments_ = segments;
    real_->start(segments, samplers);
  }
  TimeUs finish(const StepOutput& output) override {
    const TimeUs took = real_->finish(output);
    for (size_t i = 0; i < segments_.size(); ++i) {
      SegmentResult& result = output.results[i];
      const auto sampled = static_cast<uint32_t>(result.tokens.size());
      if (sampled == 0) continue;
      result.drafts = guess_(segments_[i].request, segments_[i].known_end() + sampled - 1);
    }
    return took;
  }

 private:
  std::unique_ptr<StepRunner> real_;
  Guess guess_;
  std::span<const Segment> segments_;
};

}  // namespace skein
