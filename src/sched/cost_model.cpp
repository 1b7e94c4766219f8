#include "sched/cost_model.h"

#include <algorithm>

namespace skein {
namespace {

// The constant input, of the size of a typical number of tokens so that all weights learn at a
// similar pace.
constexpr int64_t kConstantInput = 64;
constexpr int64_t kLargestInput = 1 << 20;
constexpr TimeUs kLongestStep = 3600 * kUsPerSecond;
constexpr TimeUs kMinSurpriseUs = kUsPerMs;
constexpr int64_t kLargestWeight = int64_t{1} << 40;  // times kLargestInput still fits 64 bits

struct Inputs {
  int64_t tokens;
  int64_t kpairs;
};

Inputs inputs(const StepLoad& load) {
  return {static_cast<int64_t>(std::min<uint64_t>(load.tokens, kLargestInput)),
          static_cast<int64_t>(std::min<uint64_t>(load.pairs >> 10, kLargestInput))};
}

}  // namespace

void CostModel::observe(const StepLoad& load, TimeUs elapsed_us) {
  remembered_[observations_++ % kRemembered] = {load, elapsed_us};
  // The first observations jump all the way, later ones half: quick to learn, not upset by one
  // stolen time slice. Oldest first, so that the newest has the last word.
  const int64_t gain = (int64_t{1} << kFractionBits) / (trained() ? 2 : 1);
  const uint64_t count = std::min<uint64_t>(observations_, kRemembered);
  for (uint64_t i = observations_ - count; i < observations_; ++i) {
    learn(remembered_[i % kRemembered], gain);
  }
}

void CostModel::learn(const Observation& step, int64_t gain) {
  const auto [tokens, kpairs] = inputs(step.load);
  const TimeUs expected = predict(step.load);
  TimeUs error = std::clamp<TimeUs>(step.elapsed_us, 0, kLongestStep) - expected;
  // A step that took much longer than expected was held up by something else, most of the time;
  // where it was not, the next ones say so again.
  if (trained()) error = std::min(error, expected / 2 + kMinSurpriseUs);
  const int64_t norm = kConstantInput * kConstantInput + tokens * tokens + kpairs * kpairs;
  const int64_t move = error * gain / norm;  // norm is no less than any input squared
  const auto adapt = [move](int64_t& weight, int64_t input) {
    weight = std::clamp<int64_t>(weight + move * input, 0, kLargestWeight);
  };
  adapt(fixed_, kConstantInput);
  adapt(per_token_, tokens);
  adapt(per_kpair_, kpairs);
}

TimeUs CostModel::predict(const StepLoad& load) const {
  const auto [tokens, kpairs] = inputs(load);
  return (fixed_ * kConstantInput + per_token_ * tokens + per_kpair_ * kpairs) >> kFractionBits;
}

TimeUs CostModel::marginal(uint64_t start, uint64_t count) const {
  StepLoad load;
  load.add(start, count);
  const auto [tokens, kpairs] = inputs(load);
  return (per_token_ * tokens + per_kpair_ * kpairs) >> kFractionBits;
}

bool DraftValue::pays(uint32_t position, uint16_t odds) const {
  if (odds >= kCertain || !model_.trained()) return true;
  return time_us_ * odds * 100 > model_.marginal(position, 1) * tokens_milli_ * kMarginPercent;
}

void DraftValue::add(uint32_t position, uint16_t odds) {
  time_us_ += model_.marginal(position, 1);
  tokens_milli_ += odds;
}

StepBudget::StepBudget(const CostModel& model, const StepLimits& limits, const StepLoad& decodes)
    : model_(model),
      timed_((limits.target_us > 0 || limits.slowdown_percent > 0) && decodes.tokens > 0 &&
             model.trained()) {
  const uint32_t floor = std::min(limits.tokens, kMinPrefillTokens);
  const uint64_t left = decodes.tokens < limits.tokens ? limits.tokens - decodes.tokens : 0;
  tokens_ = std::max(static_cast<uint32_t>(left), floor);
  if (!timed_) return;
  const TimeUs alone = model.predict(decodes);
  TimeUs most = limits.target_us > 0 ? limits.target_us : INT64_MAX;
  if (limits.slowdown_percent > 0) {
    most = std::min(most, std::max(kUnnoticedUs, alone / 100 * limits.slowdown_percent));
  }
  time_left_us_ = most - alone;
}

uint32_t StepBudget::fit(uint32_t start, uint32_t wanted) const {
  const uint32_t most = std::min(wanted, tokens_);
  if (!timed_ || model_.marginal(start, most) <= time_left_us_) return most;
  uint32_t low = 0;  // fits
  uint32_t high = most;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (model_.marginal(start, middle) <= time_left_us_ ? low : high) = middle;
  }
  return untouched_ ? std::max(low, std::min(most, kMinPrefillTokens)) : low;
}

void StepBudget::spend(uint32_t start, uint32_t count) {
  tokens_ -= std::min(tokens_, count);
  if (timed_) time_left_us_ -= model_.marginal(start, count);
  untouched_ = false;
}

}  // namespace skein
