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
constexpr TimeUs kLongestValued = 60 * kUsPerSecond;  // times all tokens of a step still does

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
  learn_rows({load, elapsed_us});
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

TimeUs CostModel::pairs_us(const StepLoad& load) const {
  return (per_kpair_ * inputs(load).kpairs) >> kFractionBits;
}

void CostModel::learn_rows(const Observation& step) {
  const uint64_t count = step.load.tokens;
  if (count == 0 || count > kMostRows || step.load.unsampled > 0) return;
  Rows& rows = rows_[count];
  const TimeUs took = std::clamp<TimeUs>(step.elapsed_us - pairs_us(step.load), 0, kLongestStep);
  // As in learn(): what took much longer was held up.
  const TimeUs expected = predict_rows({count, 0});
  const TimeUs believed =
      trained() ? std::min(took, expected + expected / 2 + kMinSurpriseUs) : took;
  rows.time_us = knows(count) ? (7 * rows.time_us + believed) / 8 : believed;
  rows.seen = observations_;
}

// More rows than any that are known, of which the most are `last`. A row more costs at least what
// each of those cost beyond the fewest that are known; where these are near, that is mostly noise.
TimeUs CostModel::beyond(uint64_t last, int64_t wanted) const {
  const TimeUs last_us = rows_[last].time_us;
  const int64_t more = wanted - static_cast<int64_t>(last);
  uint64_t fewest = 1;
  while (!knows(fewest)) ++fewest;
  if (2 * fewest > last) {
    return last_us + last_us * more / (static_cast<int64_t>(last) + kReadingRows);
  }
  const TimeUs rise = std::max<TimeUs>(last_us - rows_[fewest].time_us, 0);
  return last_us + rise * more / static_cast<int64_t>(last - fewest);
}

TimeUs CostModel::predict_rows(const StepLoad& load) const {
  // Fewer rows never take more. What disturbs a step makes it longer, so of two figures that
  // contradict each other the smaller one is right: by the larger one guesses would look cheap.
  uint64_t above = 0;
  TimeUs high = kLongestStep;
  for (uint64_t rows = kMostRows; rows >= std::max<uint64_t>(load.tokens, 1); --rows) {
    if (!knows(rows)) continue;
    above = rows;
    high = std::min(high, rows_[rows].time_us);
  }
  if (above > 0 && above == load.tokens) return high + pairs_us(load);
  uint64_t below = std::min<uint64_t>(load.tokens, kMostRows);
  while (below > 0 && !knows(below)) --below;
  if (below == 0 && above == 0) return predict(load);
  const int64_t count = inputs(load).tokens;
  if (above == 0) return beyond(below, count) + pairs_us(load);
  const auto next = static_cast<int64_t>(above);
  if (below == 0) return high * (count + kReadingRows) / (next + kReadingRows) + pairs_us(load);
  const TimeUs low = std::min(rows_[below].time_us, high);
  const auto last = static_cast<int64_t>(below);
  return low + (high - low) * (count - last) / (next - last) + pairs_us(load);
}

DraftValue::DraftValue(const CostModel& model, const StepLoad& decodes, uint32_t streams)
    : model_(model),
      load_(decodes),
      tokens_milli_(int64_t{1000} * streams),
      best_us_(std::min(model.predict_rows(decodes), kLongestValued)),
      best_milli_(tokens_milli_) {}

void DraftValue::add(uint32_t position, uint16_t odds) {
  load_.add(position, 1);
  tokens_milli_ += odds;
  ++count_;
  const TimeUs time_us = std::min(model_.predict_rows(load_), kLongestValued);
  const int64_t margin = best_ == 0 ? kMarginPercent : 100;
  const bool surely = odds >= kCertain || !model_.trained();
  const bool pays = load_.tokens <= CostModel::kMostRows &&
                    tokens_milli_ * best_us_ * 100 > best_milli_ * time_us * margin;
  if (!surely && !pays) return;
  best_ = count_;
  best_us_ = time_us;
  best_milli_ = tokens_milli_;
}

StepBudget::StepBudget(const CostModel& model, const StepLimits& limits, const StepLoad& decodes)
    : model_(model) {
  const uint32_t floor = std::min(limits.tokens, kMinPrefillTokens);
  const uint64_t left = decodes.tokens < limits.tokens ? limits.tokens - decodes.tokens : 0;
  tokens_ = std::max(static_cast<uint32_t>(left), floor);
  if (!model.trained()) return;
  const TimeUs alone = model.predict(decodes);
  if (limits.target_us > 0 && decodes.tokens > 0) to_target_us_ = limits.target_us - alone;
  if (limits.slowdown_percent > 0) {
    to_slowdown_us_ = std::max(kUnnoticedUs, alone / 100 * limits.slowdown_percent) - alone;
    alone_us_ = alone;
  }
}

uint32_t StepBudget::fit(uint32_t start, uint32_t wanted, Spares spares) const {
  const uint32_t most = std::min(wanted, tokens_);
  const TimeUs left = left_us(spares);
  if (model_.marginal(start, most) <= left) return most;
  uint32_t low = 0;  // fits
  uint32_t high = most;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (model_.marginal(start, middle) <= left ? low : high) = middle;
  }
  return untouched_ ? std::max(low, std::min(most, kMinPrefillTokens)) : low;
}

void StepBudget::spend(uint32_t start, uint32_t count) {
  tokens_ -= std::min(tokens_, count);
  for (TimeUs* left : {&to_target_us_, &to_slowdown_us_}) {
    if (*left != kNever) *left -= model_.marginal(start, count);
  }
  untouched_ = false;
}

}  // namespace skein
