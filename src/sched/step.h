// The values that pass between the scheduler and whoever runs a step: the decision (StepPlan), what
// came of it (StepResult) and what that meant (StepEffects). Flat arrays, reused from step to step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein {

// One request's share of a step: `count` tokens from position `start` on.
struct PlanRow {
  RequestId request;
  uint32_t start = 0;
  uint32_t count = 0;
  bool samples = false;              // the last token's logits are sampled
  bool writes_kv = true;             // false: the blocks are shared and hold the same bits already
  bool token_from_previous = false;  // its token is the one this request samples in the plan before
  // The tokens to compute; empty with token_from_previous. Valid until this plan commits.
  std::span<const TokenId> tokens;
  // The request's whole table, covering start + count tokens. Valid until this plan commits.
  std::span<const BlockId> blocks;
};

struct EndEvent {
  RequestId request;
  FinishReason reason;
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<PlanRow> rows;  // in order of admission
  uint32_t tokens = 0;        // of all rows
  // What changed on the way, each in the order it happened, preemptions before admissions.
  std::vector<EndEvent> ended;       // deadline passed: they end here, without a row
  std::vector<RequestId> preempted;  // back in the queue, in their old place
  std::vector<RequestId> admitted;   // out of the queue, for the first time or again

  bool empty() const { return rows.empty(); }

  // Empty, with room for a batch: from the second time on nothing allocates.
  void reset(uint64_t number, uint32_t batch) {
    step = number;
    tokens = 0;
    rows.clear();
    rows.reserve(batch);
    ended.clear();
    ended.reserve(batch);
    for (std::vector<RequestId>* moved : {&preempted, &admitted}) {
      moved->clear();
      moved->reserve(batch);
    }
  }
};

enum class RowOutcome : uint8_t {
  kOk,         // computed; `token` is the sample where the row samples
  kStop,       // sampled a stop token, which is not part of the answer
  kToolCalls,  // sampled the end of a tool call
  kFault,      // this row failed (NaN, throw); no other row is concerned
};

struct RowResult {
  RowOutcome outcome = RowOutcome::kOk;
  TokenId token = kNoToken;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<RowResult> rows;  // as in the plan
  TimeUs elapsed_us = 0;        // feeds the cost model
};

struct TokenEvent {
  RequestId request;
  uint32_t index;  // 0 for the first generated token
  TokenId token;
};

struct StepEffects {
  std::vector<TokenEvent> tokens;
  std::vector<EndEvent> ended;

  // Empty, with room for a batch: from the second time on nothing allocates.
  void reset(uint32_t batch) {
    tokens.clear();
    tokens.reserve(batch);
    ended.clear();
    ended.reserve(batch);
  }
};

}  // namespace skein
