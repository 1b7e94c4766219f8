// A StepRunner without a model: a row's token is a hash of its request and position, and any row
// can be told to fail. What it was asked to run is kept for the test to look at.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/rng.h"
#include "engine/loop/step_runner.h"

namespace skein {

inline constexpr uint32_t kFakeVocab = 1000;

// Shared between a test and the runner that an engine owns.
struct FakeModel {
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t depth = 1;
  std::set<uint64_t> throws;                 // requests whose rows make the step throw
  std::set<uint64_t> bad_rows;               // requests whose rows fail by themselves
  bool lost = false;                         // the next step loses the runner
  uint64_t allowed = UINT64_MAX;             // steps that may run; the next one waits for more
  std::set<uint64_t> stops;                  // requests whose next token is a stop token
  std::set<uint64_t> lasts;                  // requests whose next token is their last
  std::vector<std::vector<uint64_t>> steps;  // the requests of each step started, in order
  uint64_t computed_tokens = 0;
  uint64_t ahead = 0;  // rows whose token came from the step before
  std::map<uint64_t, std::map<uint32_t, TokenId>> fed;  // by request and position
  // What it guesses to follow after a request's token at a position.
  std::function<std::vector<TokenId>(uint64_t request, uint32_t position)> drafts;

  static TokenId token(uint64_t request, uint32_t position) {
    return static_cast<TokenId>(random_at(request, position) % kFakeVocab);
  }
};

class FakeRunner final : public StepRunner {
 public:
  explicit FakeRunner(std::shared_ptr<FakeModel> model) : model_(std::move(model)) {}

  uint32_t depth() const override { return model_->depth; }

  void start(std::span<const PlanRow> rows, std::span<const RowTask> tasks) override {
    const std::lock_guard lock(model_->mutex);
    std::vector<uint64_t>& ids = model_->steps.emplace_back();
    for (const PlanRow& row : rows) ids.push_back(row.request.value);
    started_.push_back({rows, tasks});
    model_->changed.notify_all();
  }

  TimeUs finish(std::span<RowOutput> outputs) override {
    std::unique_lock lock(model_->mutex);
    const Started step = started_.front();
    started_.pop_front();
    model_->changed.wait(lock, [this] { return model_->allowed > 0; });
    if (model_->allowed != UINT64_MAX) --model_->allowed;
    if (std::exchange(model_->lost, false)) throw RunnerLost("the device is gone");
    for (const PlanRow& row : step.rows) {
      if (model_->throws.contains(row.request.value)) throw std::runtime_error("planted fault");
    }
    for (size_t i = 0; i < step.rows.size(); ++i) {
      compute(step.rows[i]);
      sample(step.rows[i], step.tasks[i].position, outputs[i]);
    }
    return 0;
  }

 private:
  struct Started {
    std::span<const PlanRow> rows;
    std::span<const RowTask> tasks;
  };

  void compute(const PlanRow& row) {
    const uint64_t id = row.request.value;
    model_->computed_tokens += row.count;
    uint32_t position = row.start;
    if (row.token_from_previous) {
      ++model_->ahead;
      model_->fed[id][position++] = sampled_.at(id);
    }
    for (const TokenId token : row.tokens) model_->fed[id][position++] = token;
    for (const TokenId token : row.drafts) model_->fed[id][position++] = token;
  }

  void sample(const PlanRow& row, uint32_t position, RowOutput& output) {
    const uint64_t id = row.request.value;
    if (model_->bad_rows.contains(id)) output.status = internal_error("logit 7 is nan");
    if (row.ends) output.hidden = {static_cast<float>(id), static_cast<float>(row.count)};
    for (uint32_t n = 0; n < row.samples; ++n) {
      SampledToken sampled;
      sampled.token = sampled_[id] = FakeModel::token(id, position + n);
      sampled.stop = model_->stops.contains(id);
      sampled.last = model_->lasts.contains(id);
      output.sampled.push_back(sampled);
      if (sampled.stop || sampled.last) break;
      if (n < row.drafts.size() && sampled.token != row.drafts[n]) break;
    }
    const auto more = static_cast<uint32_t>(output.sampled.size());
    if (model_->drafts && more > 0) output.drafts = model_->drafts(id, position + more - 1);
  }

  std::shared_ptr<FakeModel> model_;
  std::deque<Started> started_;
  std::map<uint64_t, TokenId> sampled_;  // by request: its latest token
};

}  // namespace skein
