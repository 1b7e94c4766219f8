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

// One request's segment of a step: `count` tokens from position `start` on, drafts last.
struct PlanRow {
  RequestId request;
  uint32_t start = 0;
  uint32_t count = 0;
  uint32_t samples = 0;              // its last tokens whose logits are sampled: 0, or 1 + drafts
  bool ends = false;                 // it samples nothing, and its request is done with it
  bool writes_kv = true;             // false: the blocks are shared and hold the same bits already
  bool token_from_previous = false;  // its token is the one this request samples in the plan before
  // The tokens to compute; empty with token_from_previous. Valid until this plan commits.
  std::span<const TokenId> tokens;
  // Guesses at what follows them. One that is sampled in its place is part of the answer, and the
  // token after it is sampled too. Valid until this plan commits.
  std::span<const TokenId> drafts;
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
  kOk,     // computed; with samples, at least one token
  kLast,   // likewise, and the last of the tokens is the last of the answer
  kStop,   // a stop token was sampled after the tokens; it is not part of the answer
  kFault,  // this row failed (NaN, throw); no other row is concerned
};

// A row without samples has no tokens. The others have one for each draft that came true and one
// more, or less where the answer ends.
struct RowResult {
  RowOutcome outcome = RowOutcome::kOk;
  uint32_t tokens = 0;  // how many of StepResult::tokens are its own
  uint32_t drafts = 0;  // how many of StepResult::drafts
};

struct StepResult {
  uint64_t step = 0;
  std::vector<RowResult> rows;  // as in the plan
  std::vector<TokenId> tokens;  // sampled, row after row
  std::vector<TokenId> drafts;  // guesses at what follows the tokens, row after row
  TimeUs elapsed_us = 0;        // feeds the cost model

  void reset(uint64_t number) {
    step = number;
    rows.clear();
    tokens.clear();
    drafts.clear();
  }
  // The next row.
  void add(RowOutcome outcome, std::span<const TokenId> sampled = {},
           std::span<const TokenId> guesses = {}) {
    rows.push_back(
        {outcome, static_cast<uint32_t>(sampled.size()), static_cast<uint32_t>(guesses.size())});
    tokens.insert(tokens.end(), sampled.begin(), sampled.end());
    drafts.insert(drafts.end(), guesses.begin(), guesses.end());
  }
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
