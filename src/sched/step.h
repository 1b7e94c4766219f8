// The values that pass between the scheduler and whoever runs a step: the decision (StepPlan), what
// came of it (StepResult) and what that meant (StepEffects). Flat arrays, reused from step to step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein {

// A request's rows in a step: `count` tokens from position `start` on, drafts last.
struct Segment {
  RequestId request;
  uint32_t start = 0;
  uint32_t count = 0;
  uint32_t samples = 0;              // its last tokens whose logits are sampled: 0, or 1 + drafts
  bool ends = false;                 // it samples nothing, and its request is done with it
  bool wants_every_row = false;      // as its request asks: no row of it was left out before
  bool writes_kv = true;             // false: the blocks are shared and hold the same bits already
  uint32_t second_from = 0;          // as its request says
  bool token_from_previous = false;  // its token is the one this request samples in the plan before
  // The tokens to compute; empty with token_from_previous. Valid until this plan commits.
  std::span<const TokenId> tokens;
  // Guesses at what follows them. One that is sampled in its place is part of the answer, and the
  // token after it is sampled too. Valid until this plan commits.
  std::span<const TokenId> drafts;
  // The request's whole table, covering start + count tokens; none with SchedulerConfig::whole.
  // Valid until this plan commits.
  std::span<const BlockId> blocks;

  // The position behind the tokens that are known: of the first draft, and of the first sample.
  uint32_t known_end() const { return start + count - static_cast<uint32_t>(drafts.size()); }
};

struct EndEvent {
  RequestId request;
  FinishReason reason;
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<Segment> segments;  // in order of admission
  uint32_t tokens = 0;            // of all segments
  // Changes on the way, each in the order it happened, preemptions before admissions.
  std::vector<EndEvent> ended;       // deadline passed: they end here, without a segment
  std::vector<RequestId> preempted;  // back in the queue, in their old place
  std::vector<RequestId> admitted;   // out of the queue, for the first time or again

  bool empty() const { return segments.empty(); }
  // Whether it computes one token of each request, and guesses at what follows: no prompts.
  bool decodes() const {
    return std::all_of(segments.begin(), segments.end(),
                       [](const Segment& s) { return s.known_end() == s.start + 1; });
  }

  // Empty, with room for a batch: from the second time on nothing allocates.
  void reset(uint64_t number, uint32_t batch) {
    step = number;
    tokens = 0;
    segments.clear();
    segments.reserve(batch);
    ended.clear();
    ended.reserve(batch);
    for (std::vector<RequestId>* moved : {&preempted, &admitted}) {
      moved->clear();
      moved->reserve(batch);
    }
  }
};

enum class SegmentOutcome : uint8_t {
  kOk,      // computed; with samples, at least one token
  kLast,    // likewise, and the last of the tokens is the last of the answer
  kStop,    // a stop token was sampled after the tokens; it is not part of the answer
  kFault,   // this segment failed (NaN, throw); no other segment is concerned
  kPutOff,  // nothing was sampled: its token takes long to draw, and is drawn beside the steps
};

// The result of a segment. Without samples, or when it is put off, it has no tokens; otherwise it
// has one for each draft that came true and one more, or less where the answer ends.
struct SegmentResult {
  SegmentOutcome outcome = SegmentOutcome::kOk;
  std::vector<TokenId> tokens;  // sampled
  std::vector<TokenId> drafts;  // guesses at what follows them
  // By draft: how likely it and all before it come true, in 1/1000. None: they are certain.
  std::vector<uint16_t> odds = {};

  void reset(SegmentOutcome what = SegmentOutcome::kOk) {
    outcome = what;
    tokens.clear();
    drafts.clear();
    odds.clear();
  }
};

class StepResult {
 public:
  uint64_t step = 0;
  TimeUs elapsed_us = 0;  // feeds the cost model

  // `count` empty results. Those of earlier steps keep their memory, so that nothing allocates once
  // a step as large as this one was there.
  void reset(uint64_t number, size_t count = 0) {
    step = number;
    count_ = count;
    if (results_.size() < count) results_.resize(count);
    for (SegmentResult& result : segments()) result.reset();
  }
  // One more.
  void add(SegmentOutcome outcome, std::span<const TokenId> tokens = {},
           std::span<const TokenId> drafts = {}, std::span<const uint16_t> odds = {}) {
    if (++count_ > results_.size()) results_.emplace_back();
    SegmentResult& result = results_[count_ - 1];
    result.outcome = outcome;
    result.tokens.assign(tokens.begin(), tokens.end());
    result.drafts.assign(drafts.begin(), drafts.end());
    result.odds.assign(odds.begin(), odds.end());
  }

  std::span<SegmentResult> segments() { return {results_.data(), count_}; }  // as in the plan
  std::span<const SegmentResult> segments() const { return {results_.data(), count_}; }

 private:
  std::vector<SegmentResult> results_;
  size_t count_ = 0;
};

struct TokenEvent {
  RequestId request;
  uint32_t index;  // 0 for the first generated token
  TokenId token;
};

struct StepEffects {
  std::vector<TokenEvent> tokens;
  std::vector<EndEvent> ended;

  // Empty, with room for what a step can bring: from the second time on nothing allocates.
  void reset(uint32_t batch, uint32_t drafts) {
    tokens.clear();
    tokens.reserve(size_t{batch} + drafts);
    ended.clear();
    ended.reserve(batch);
  }
};

}  // namespace skein
