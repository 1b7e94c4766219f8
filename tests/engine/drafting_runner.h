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
  // Guesses what follows the token at a position.
  using Guess = std::function<std::vector<TokenId>(uint32_t position)>;

  DraftingRunner(std::unique_ptr<StepRunner> real, Guess guess)
      : real_(std::move(real)), guess_(std::move(guess)) {}

  void start(std::span<const PlanRow> rows, std::span<const RowTask> tasks) override {
    tasks_ = tasks;
    real_->start(rows, tasks);
  }
  TimeUs finish(std::span<RowOutput> outputs) override {
    const TimeUs took = real_->finish(outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto sampled = static_cast<uint32_t>(outputs[i].sampled.size());
      if (sampled > 0) outputs[i].drafts = guess_(tasks_[i].position + sampled - 1);
    }
    return took;
  }

 private:
  std::unique_ptr<StepRunner> real_;
  Guess guess_;
  std::span<const RowTask> tasks_;
};

}  // namespace skein
