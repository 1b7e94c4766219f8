// A StepRunner without a model: a row's token is a hash of its request and position, and any row
// can be told to fail. What it was asked to run is kept for the test to look at.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/rng.h"
#include "engine/step_runner.h"

namespace skein {

inline constexpr uint32_t kFakeVocab = 1000;

// Shared between a test and the runner that an engine owns.
struct FakeModel {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<uint64_t> throws;                 // requests whose rows make the step throw
  std::set<uint64_t> bad_rows;               // requests whose rows fail by themselves
  bool lost = false;                         // the next step loses the runner
  uint64_t allowed = UINT64_MAX;             // steps that may run; the next one waits for more
  std::set<uint64_t> stops;                  // requests whose next token is a stop token
  std::vector<std::vector<uint64_t>> steps;  // the requests of each run, in order
  uint64_t computed_tokens = 0;

  static TokenId token(uint64_t request, uint32_t position) {
    return static_cast<TokenId>(random_at(request, position) % kFakeVocab);
  }
};

class FakeRunner final : public StepRunner {
 public:
  explicit FakeRunner(std::shared_ptr<FakeModel> model) : model_(std::move(model)) {}

  TimeUs run(std::span<const PlanRow> rows, std::span<const RowTask> tasks,
             std::span<RowOutput> outputs) override {
    std::unique_lock lock(model_->mutex);
    std::vector<uint64_t> ids;
    for (const PlanRow& row : rows) ids.push_back(row.request.value);
    model_->steps.push_back(ids);
    model_->changed.notify_all();
    model_->changed.wait(lock, [this] { return model_->allowed > 0; });
    if (model_->allowed != UINT64_MAX) --model_->allowed;
    if (model_->lost) {
      model_->lost = false;
      throw RunnerLost("the device is gone");
    }
    for (const uint64_t id : ids) {
      if (model_->throws.contains(id)) throw std::runtime_error("planted fault");
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      model_->computed_tokens += rows[i].count;
      if (model_->bad_rows.contains(ids[i])) outputs[i].status = internal_error("logit 7 is nan");
      if (tasks[i].sampler == nullptr) continue;
      outputs[i].sampled = {};
      outputs[i].sampled.token = FakeModel::token(ids[i], tasks[i].position);
      outputs[i].sampled.stop = model_->stops.contains(ids[i]);
    }
    return 0;
  }

 private:
  std::shared_ptr<FakeModel> model_;
};

}  // namespace skein
