// The words that the control plane and its users share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace skein {

// Class of a request; smaller is better. It comes from the endpoint or the API key, never from the
// client.
enum class Priority : uint8_t { HIGH = 0, NORMAL = 1, LOW = 2 };
inline constexpr uint32_t kPriorities = 3;

// The endpoint decides first, then the key's tier. Nothing that a client
// sends takes part.
constexpr Priority request_class(bool batch_route, std::optional<Priority> tier) {
  return batch_route ? Priority::LOW : tier.value_or(Priority::NORMAL);
}

enum class RequestStatus : uint8_t {
  WAITING,     // in the queue: new, or preempted
  PREFILLING,  // runs; its known tokens are not all computed yet
  RUNNING,     // runs; one token a step
  COMPLETED,   // ended with stop, length or tool_calls, or computed as far as it asked for
  CANCELLED,   // ended by the client, a deadline, an error or a drain
};

// Why a request ended. The first three make it COMPLETED, the others CANCELLED.
enum class FinishReason : uint8_t {
  kStop,
  kLength,
  kToolCalls,
  kClient,
  kTimedOut,
  kError,
  kDrained,
};

inline constexpr uint32_t kFinishReasons = 7;

constexpr bool is_completed(FinishReason reason) {
  return reason <= FinishReason::kToolCalls;
}

// Why a request has no segment in the latest plan.
enum class WaitReason : uint8_t {
  kNone,            // it has one, or nothing was planned since it came
  kBehindOthers,    // others of better effective priority are ahead in the queue
  kBatchFull,       // first in the queue; batch_max_batch_size requests run
  kNoBlocks,        // first in the queue, or growing; KV blocks are short
  kStepBudget,      // first in the queue, or prefilling; the step's tokens went to others
  kPrefixUnderWay,  // another request is computing the very block it needs next
  kHeldBack,        // it is about to be preempted when its step in flight commits
  kDrawUnderWay,    // its next token is being drawn beside the steps
};

// What the form of an answer has taken so far, which the engine knows.
struct FormUse {
  std::string_view zone;  // what it said of the latest token: "free", "bound", or "ended" behind it
  uint32_t masks = 0;     // that were looked up or made
  uint64_t slowest_mask_us = 0;
};

// Answer of explain(): everything there is to say about a live request.
struct Explanation {
  RequestId id;
  RequestStatus status = RequestStatus::WAITING;
  Priority priority = Priority::NORMAL;
  int64_t effective_priority_milli = 0;  // 1000 x (class - rate x wait): less is sooner
  TimeUs waited_us = 0;                  // since arrival
  uint32_t queue_position = 0;           // 1 = first; 0 = not in the queue
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  uint32_t computed_tokens = 0;
  uint32_t cached_tokens = 0;    // prompt tokens that the prefix cache saved, over its whole life
  uint32_t drafted_tokens = 0;   // guesses that were computed
  uint32_t accepted_tokens = 0;  // of these, came true
  uint32_t blocks = 0;
  uint32_t preemptions = 0;
  WaitReason wait = WaitReason::kNone;
  uint32_t blocks_needed = 0;     // with kNoBlocks: what it needs, growth of others included
  uint32_t blocks_available = 0;  // and what there was
  std::optional<FormUse> form = {};

  // One sentence for people: "waits: needs 12 KV blocks, 4 are available".
  std::string describe() const;
};

// What a KV block is at a moment; of several blocks, what most of them are.
enum class BlockUse : uint8_t { kFree, kCached, kHeld, kShared };
inline constexpr uint32_t kBlockUses = 4;

// Everything that is live at one moment, for people who look at it. Bounded, whatever the size of
// queue and pool.
struct SchedulerView {
  static constexpr uint32_t kMaxRequests = 512;
  static constexpr uint32_t kMaxCells = 1024;
  static constexpr uint32_t kNobody = UINT32_MAX;

  // Some blocks of the pool that stand side by side.
  struct Cell {
    BlockUse use = BlockUse::kFree;
    uint32_t holder = kNobody;  // a request that holds one of them: its place in `requests`
  };

  std::vector<Explanation> requests;  // those that run as they were admitted, then who waits
  uint32_t cell_blocks = 1;           // of a cell; the last one may have fewer
  std::vector<Cell> cells;
};

// Counts since the scheduler was made, and gauges of this moment.
struct SchedulerStats {
  uint32_t waiting[kPriorities] = {};
  TimeUs oldest_arrival[kPriorities] = {kNever, kNever, kNever};  // of those; kNever: nobody waits
  uint32_t prefilling = 0;
  uint32_t running = 0;  // decoding
  uint32_t pool_blocks = 0;
  uint32_t held_blocks = 0;
  uint32_t cached_blocks = 0;

  uint64_t steps = 0;
  uint64_t submitted = 0;
  uint64_t refused = 0;
  uint64_t completed = 0;
  uint64_t cancelled = 0;
  uint64_t prompt_tokens = 0;     // of requests that were admitted
  uint64_t generated_tokens = 0;  // delivered
  uint64_t computed_tokens = 0;   // rows that went through the model
  uint64_t wasted_tokens = 0;     // sampled for a request that had ended by then
  uint64_t drafts = 0;            // decode rows with guesses behind them
  uint64_t drafted_tokens = 0;    // guesses that were computed
  uint64_t accepted_tokens = 0;   // of these, came true
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t admission_hits = 0;  // admissions that found part of their tokens cached
  uint64_t prefill_hits = 0;    // hits at a block border in mid-prefill
  uint64_t full_hits = 0;       // prompts found whole: one token computed, nothing written
  uint64_t preemptions = 0;
  uint64_t class_preemptions = 0;  // of these, to make room for a better class
  uint64_t evictions = 0;
  uint64_t deadlines = 0;
};

std::string_view name_of(Priority priority);
std::string_view name_of(RequestStatus status);
std::string_view name_of(FinishReason reason);
std::string_view name_of(WaitReason reason);

}  // namespace skein
