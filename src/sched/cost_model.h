// CostModel: how long a step takes, learned from the steps before; and StepBudget: how much prefill
// fits into the next one.
//
// The model is linear: fixed + per token + per (token, context) pair. Its weights follow the
// measurements by normalized least mean squares over the last steps in fixed point, so it needs no
// float, forgets old conditions by itself and cannot become singular under a constant load. Weights
// stay >= 0.
//
// For steps of sampled rows alone the line is wrong: kernels take rows by twos and fours, the first
// ones hide behind the reading of the weights, and a row that is sampled takes a product with the
// whole vocabulary, which a prompt's does not. So what these took is kept by the number of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"

namespace skein {

// Size of a step: its tokens, for how many (token, earlier token) pairs attention is computed, and
// how many of the tokens are not sampled.
struct StepLoad {
  uint64_t tokens = 0;
  uint64_t pairs = 0;
  uint64_t unsampled = 0;

  // `count` tokens of a request whose first one stands at position `start`.
  void add(uint64_t start, uint64_t count) {
    tokens += count;
    pairs += count * start + count * (count + 1) / 2;
  }
};

class CostModel {
 public:
  void observe(const StepLoad& load, TimeUs elapsed_us);
  TimeUs predict(const StepLoad& load) const;
  // Cost of `count` more tokens from position `start` on, on top of a step that runs anyway.
  TimeUs marginal(uint64_t start, uint64_t count) const;
  // The most rows of which it is kept what steps of them took.
  static constexpr uint32_t kMostRows = 192;
  // As predict(), of a step whose rows are all sampled, as those with so many took lately. What
  // none had is between its neighbours; beyond them it follows from the nearest one.
  TimeUs predict_rows(const StepLoad& load) const;
  bool trained() const { return observations_ >= kWarmUp; }

 private:
  // Where nothing else is known: reading the weights takes as long as this many rows.
  static constexpr int64_t kReadingRows = 8;
  // A figure that is older than so many steps says nothing: or one that was held up would never be
  // tried again.
  static constexpr uint64_t kFresh = 1024;
  // Steps that are gone through again with every new one. One alone cannot tell what is fixed from
  // what is a token's or a pair's; a prompt's way from its begin to its end can.
  static constexpr uint32_t kRemembered = 32;
  static constexpr uint32_t kWarmUp = 4;
  static constexpr int kFractionBits = 16;

  struct Observation {
    StepLoad load;
    TimeUs elapsed_us = 0;
  };
  // What steps of so many rows took lately, pairs apart.
  struct Rows {
    TimeUs time_us = 0;
    uint64_t seen = 0;  // counts observations from 1 on; 0: never
  };
  void learn(const Observation& step, int64_t gain);
  void learn_rows(const Observation& step);
  TimeUs pairs_us(const StepLoad& load) const;
  TimeUs beyond(uint64_t last, int64_t wanted) const;
  bool knows(uint64_t rows) const {
    return rows_[rows].seen > 0 && observations_ - rows_[rows].seen < kFresh;
  }

  int64_t fixed_ = 0;      // us per unit of the constant input, times 2^16; so are the others
  int64_t per_token_ = 0;  // us per token
  int64_t per_kpair_ = 0;  // us per 1,024 pairs
  std::array<Observation, kRemembered> remembered_;  // the newest is at (observations_ - 1) % 32
  std::array<Rows, kMostRows + 1> rows_;
  uint64_t observations_ = 0;
};

// DraftValue: how many guesses make a step give the most tokens a second.
//
// A step of T us gives N tokens. One with guesses takes longer and gives as many more as are likely
// to come true. All numbers of them are looked at, since the first one more may cost much and the
// next nothing.
class DraftValue {
 public:
  static constexpr uint16_t kCertain = 1000;

  // `streams`: the decode rows of the step, whose load is `decodes`.
  DraftValue(const CostModel& model, const StepLoad& decodes, uint32_t streams);

  // One guess more, at `position`, with `odds` in 1/1000 of coming true. Likeliest first.
  void add(uint32_t position, uint16_t odds);
  // How many, from the first on, are worth it. What is certain always is, and as long as nothing is
  // known of costs everything is. In steps of more than CostModel::kMostRows nothing else is.
  uint32_t best() const { return best_; }

 private:
  // Costs and odds are learned from few steps, so what is hardly better than none is none: texts
  // without anything to guess must not pay for the search.
  static constexpr int64_t kMarginPercent = 115;

  const CostModel& model_;
  StepLoad load_;
  int64_t tokens_milli_;
  uint32_t count_ = 0;
  uint32_t best_ = 0;
  TimeUs best_us_;
  int64_t best_milli_;
};

// How much a step may take on. The target holds while someone is streaming, the slowdown for
// prompts that have to spare somebody (Spares); both together: the shorter.
struct StepLimits {
  uint32_t tokens = 0;
  TimeUs target_us = 0;           // of a step; 0: none
  uint32_t slowdown_percent = 0;  // of what its decode rows would take alone; 0: none
};
// A slowdown may always come to this: nobody reads sixteen tokens a second.
inline constexpr TimeUs kUnnoticedUs = 60 * kUsPerMs;

// For whose sake a prompt may not make a step as long as its tokens would.
enum class Spares : uint8_t {
  kNobody,
  kAsker,   // who may ask for something better while the step runs: the prompts of the step may
            // take as long as a slowdown allows the whole of it
  kStream,  // whose next token comes with the step
};

// The part of a step that its decode rows leave to prefill: a number of tokens and a time.
class StepBudget {
 public:
  StepBudget(const CostModel& model, const StepLimits& limits, const StepLoad& decodes);

  // Of the prompt in question.
  bool spent(Spares spares = Spares::kStream) const {
    return tokens_ == 0 || (!untouched_ && left_us(spares) <= 0);
  }
  // How many of `wanted` tokens from position `start` on fit; 0 when the budget is spent.
  uint32_t fit(uint32_t start, uint32_t wanted, Spares spares = Spares::kStream) const;
  // Whether one token at that position does: a guess, which has no claim to a least part.
  bool fits(uint32_t position) const {
    return tokens_ > 0 && model_.marginal(position, 1) <= left_us(Spares::kStream);
  }
  void spend(uint32_t start, uint32_t count);

 private:
  // A step with decode rows still takes this much prefill, or a long prompt would never end.
  static constexpr uint32_t kMinPrefillTokens = 16;

  const CostModel& model_;
  TimeUs left_us(Spares spares) const {
    if (spares == Spares::kNobody || to_slowdown_us_ == kNever) return to_target_us_;
    return std::min(to_target_us_, to_slowdown_us_ + (spares == Spares::kAsker ? alone_us_ : 0));
  }

  uint32_t tokens_;
  // What is left of the times; kNever: there is no such limit.
  TimeUs to_target_us_ = kNever;
  TimeUs to_slowdown_us_ = kNever;
  TimeUs alone_us_ = 0;  // that the decode rows take
  bool untouched_ = true;
};

}  // namespace skein
