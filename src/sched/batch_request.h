// BatchRequest: one request from submit to its end, as the scheduler sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/time.h"
#include "kv/block_table.h"
#include "sched/priority_queue_with_aging.h"
#include "sched/types.h"

namespace skein {

// A request as its caller submits it.
struct RequestSpec {
  RequestId id;
  Priority priority = Priority::NORMAL;
  std::vector<TokenId> prompt;
  std::optional<uint32_t> max_new_tokens;  // absent: to the end of context and pool
  TimeUs deadline = kNever;
  Hash128 salt;  // tenant: requests with different salts never share KV
  // It samples nothing and is complete when its prompt is computed; max_new_tokens does not count.
  bool ends_when_computed = false;
  // Something of every row is wanted, in order: nothing is taken from the prefix cache, and nothing
  // of it is left there for others.
  bool wants_every_row = false;
  // False: how its next token is sampled depends on the last one (a constraint, drafts), so no step
  // samples it before that token is known.
  bool plans_ahead = true;
  // Of two texts for an encoder, where the second one begins; 0: there is one. Handed on.
  uint32_t second_from = 0;
};

// The scheduler's record. One idea carries it: *computed tokens catch up with tokens*. Prefill,
// chunks, prefix hits, decode and resume after preemption are all the same gap being closed.
//
//   0 <= computed <= planned <= tokens.size() + pending_samples + drafts_in_flight
//
// `computed` counts tokens whose KV is in the blocks and committed; `planned` adds those of plans
// in flight; `pending_samples` counts tokens that plans in flight will sample for certain. While a
// plan in flight has drafts, nobody knows how many tokens it will sample, and the request is in no
// other one; its commit takes `planned` back to the drafts that came true.
struct BatchRequest {
  RequestId id;
  Priority priority = Priority::NORMAL;
  RequestStatus status = RequestStatus::WAITING;

  TimeUs arrival = 0;
  TimeUs deadline = kNever;
  TimeUs key = 0;  // arrival + class x time per class: the order of all requests, at every moment
  uint64_t order = 0;  // of submission; breaks ties

  std::vector<TokenId> tokens;  // prompt, then what was generated; never reallocates after submit
  uint32_t prompt_tokens = 0;
  uint32_t limit_tokens = 0;  // it ends with kLength when tokens.size() gets here
  bool ends_when_computed = false;
  bool plans_ahead = true;
  uint32_t second_from = 0;
  std::vector<TokenId> drafts;  // guesses at what follows the tokens; never reallocates either
  std::vector<uint16_t> odds;   // by draft, as SegmentResult has them; nor does this

  BlockTable table;
  uint32_t computed = 0;
  uint32_t planned = 0;
  uint32_t pending_samples = 0;
  uint32_t drafts_in_flight = 0;
  uint32_t segments_in_flight = 0;

  // The plan being made.
  uint32_t step_tokens = 0;   // tokens of its segment; 0 = none
  uint32_t step_drafts = 0;   // and how many drafts follow them
  uint64_t held_in_step = 0;  // it gets no segment in that step
  bool put_off = false;       // nor in any, until resume(): its token is drawn beside the steps
  WaitReason wait = WaitReason::kNone;

  uint32_t cached_tokens = 0;
  uint32_t drafted_tokens = 0;
  uint32_t accepted_tokens = 0;
  uint32_t preemptions = 0;
  PriorityQueueWithAging::Handle queue_handle;  // while WAITING
  uint32_t queue_position = 0;                  // when the queue was last numbered
  uint32_t deadline_index = UINT32_MAX;         // in the DeadlineHeap, if it has a deadline

  bool ended() const {
    return status == RequestStatus::COMPLETED || status == RequestStatus::CANCELLED;
  }
  bool runs() const {
    return status == RequestStatus::PREFILLING || status == RequestStatus::RUNNING;
  }
  // Tokens that exist or will exist when the plans in flight are done.
  uint32_t total() const { return static_cast<uint32_t>(tokens.size()) + pending_samples; }
  // Next in line is a single sampled token: a decode row.
  bool decodes() const { return status == RequestStatus::RUNNING || pending_samples > 0; }
  // Every token it may have is sampled or being sampled.
  bool at_limit() const { return total() >= limit_tokens; }

  friend bool goes_before(const BatchRequest& a, const BatchRequest& b) {
    return a.key != b.key ? a.key < b.key : a.order < b.order;
  }
};

}  // namespace skein
