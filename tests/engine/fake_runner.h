// A StepRunner without a model: a token is a hash of its request and position, and any segment can
// be told to fail. What it was asked to run is kept for the test to look at.
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
  std::set<uint64_t> throws;                 // requests whose segments make the step throw
  std::set<uint64_t> bad_segments;           // requests whose segments fail by themselves
  bool lost = false;                         // the next step loses the runner
  uint64_t allowed = UINT64_MAX;             // steps that may run; the next one waits for more
  std::set<uint64_t> stops;                  // requests whose next token is a stop token
  std::set<uint64_t> lasts;                  // requests whose next token is their last
  std::vector<std::vector<uint64_t>> steps;  // the requests of each step started, in order
  uint64_t computed_tokens = 0;
  uint64_t ahead = 0;  // segments whose token came from the step before
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

  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> /*samplers*/) override {
    const std::lock_guard lock(model_->mutex);
    std::vector<uint64_t>& ids = model_->steps.emplace_back();
    for (const Segment& segment : segments) ids.push_back(segment.request.value);
    started_.push_back(segments);
    model_->changed.notify_all();
  }

  TimeUs finish(const StepOutput& output) override {
    std::unique_lock lock(model_->mutex);
    const std::span<const Segment> step = started_.front();
    started_.pop_front();
    model_->changed.wait(lock, [this] { return model_->allowed > 0; });
    if (model_->allowed != UINT64_MAX) --model_->allowed;
    if (std::exchange(model_->lost, false)) throw RunnerLost("the device is gone");
    for (const Segment& segment : step) {
      if (model_->throws.contains(segment.request.value)) throw std::runtime_error("planted fault");
    }
    for (size_t i = 0; i < step.size(); ++i) {
      compute(step[i]);
      sample(step[i], output.results[i], output.details[i]);
    }
    return 0;
  }

 private:
  void compute(const Segment& segment) {
    const uint64_t id = segment.request.value;
    model_->computed_tokens += segment.count;
    uint32_t position = segment.start;
    if (segment.token_from_previous) {
      ++model_->ahead;
      model_->fed[id][position++] = sampled_.at(id);
    }
    for (const TokenId token : segment.tokens) model_->fed[id][position++] = token;
    for (const TokenId token : segment.drafts) model_->fed[id][position++] = token;
  }

  void sample(const Segment& segment, SegmentResult& result, SegmentDetails& details) {
    const uint64_t id = segment.request.value;
    if (model_->bad_segments.contains(id)) details.status = internal_error("logit 7 is nan");
    if (segment.wants_every_row) {
      for (uint32_t row = 0; row < segment.count; ++row) {
        details.hidden.push_back(static_cast<float>(id));
        details.hidden.push_back(static_cast<float>(segment.start + row));
      }
    } else if (segment.ends) {
      details.hidden = {static_cast<float>(id), static_cast<float>(segment.count)};
    }
    for (uint32_t n = 0; n < segment.samples; ++n) {
      const TokenId token = sampled_[id] = FakeModel::token(id, segment.known_end() + n);
      if (model_->stops.contains(id)) {
        result.outcome = SegmentOutcome::kStop;
        break;
      }
      result.tokens.push_back(token);
      if (model_->lasts.contains(id)) {
        result.outcome = SegmentOutcome::kLast;
        break;
      }
      if (n < segment.drafts.size() && token != segment.drafts[n]) break;
    }
    const auto more = static_cast<uint32_t>(result.tokens.size());
    if (model_->drafts && more > 0) {
      result.drafts = model_->drafts(id, segment.known_end() + more - 1);
    }
  }

  std::shared_ptr<FakeModel> model_;
  std::deque<std::span<const Segment>> started_;
  std::map<uint64_t, TokenId> sampled_;  // by request: its latest token
};

}  // namespace skein
