// ContinuousBatchingScheduler: decides, step by step, which tokens of which requests are computed.
//
// A pure, deterministic, single-threaded state machine. Time is an argument; there is no clock,
// lock, thread, I/O or float in here, and the same calls give the same plans, byte for byte.
//
//   submit(spec, now)           Ok: queued. kResourceExhausted: queue full. kOutOfRange: never
//   fits.
//                               kInvalidArgument, kAlreadyExists, kUnavailable (draining). On any
//                               error nothing has changed.
//   plan(now, plan)             fills `plan` with the next step; empty when nothing can run.
//   commit(result, now, fx)     what came of the oldest plan in flight: tokens and ends.
//   resume(id)                  a request whose segment was put off may have its rows again.
//   cancel(id, reason)          ends a request in whatever state it is; true if it was live.
//
// plan() may run up to `depth` steps ahead of commit(); plans commit in order. Every request ends
// exactly once: in StepEffects::ended, in StepPlan::ended, by cancel() returning true, or in the
// events of cancel_all(). No token event follows its end.
//
// Who runs: decode rows first; then prefill in order of (aged) priority, running
// requests and the head of the queue alike, within the step's budget, which spares streams, but
// none of strictly worse class and key than the prompt. The head must fit whole, plus room for what
// runs to grow; nobody bypasses it. Out of blocks, the running request with the worst key gives
// way; its full blocks stay cached. A waiting request of strictly better class and key may take the
// place of running ones.
//
// A result may bring drafts, guesses at a request's next tokens, with the odds that they come true.
// They are checked in its next step with what that step has left, likeliest first, as many as make
// the step give the most tokens a second; never beside a prompt, and never in blocks that anyone
// waits for.
//
// plan() and commit() allocate nothing once the arrays of the caller have grown to their size.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "kv/kv_allocator.h"
#include "sched/batch_request.h"
#include "sched/cost_model.h"
#include "sched/deadline_heap.h"
#include "sched/priority_queue_with_aging.h"
#include "sched/step.h"
#include "sched/types.h"

namespace skein {

// Largest values that a configuration may ask for; they keep every product below in 64 bits.
inline constexpr uint32_t kMaxPoolBlocks = 1U << 26;
inline constexpr uint32_t kMaxBatch = 1U << 16;
inline constexpr uint32_t kMaxQueue = 1U << 24;
inline constexpr uint32_t kMaxStepTokens = 1U << 20;
inline constexpr uint32_t kMaxContext = 1U << 26;
inline constexpr uint32_t kMaxSlowdownPercent = 1'000'000;
inline constexpr uint64_t kMaxUsPerClass = 1'000'000'000ULL * kUsPerSecond;  // aging all but off

struct SchedulerConfig {
  uint32_t pool_blocks = 0;  // batch_block_pool_size: KV blocks of 32 tokens
  uint32_t max_batch = 32;   // batch_max_batch_size: requests that run in a step
  // From so many on, one more a step runs, and only where a step of all of them stays short: within
  // 100 ms, or four times a step of one. 0: the time does not matter.
  uint32_t sure_batch = 0;
  uint32_t max_queue = 1024;   // requests that may wait
  uint32_t step_tokens = 256;  // tokens of a step; decode rows always run, prefill gets the rest
  uint32_t max_context = 0;    // tokens of one request, prompt and answer
  uint32_t vocab_size = 0;     // token ids are below this
  uint32_t depth = 1;          // plans in flight at a time
  uint32_t step_drafts = 0;    // drafts of a step, out of its tokens; 0: none are looked at
  TimeUs us_per_class = 10 * kUsPerSecond;  // 1 / aging rate; the bound on waiting per class
  TimeUs inter_token_target_us = 0;         // 0: no target
  // How long prompts may make a step, of what its streams would take alone; 0: no limit.
  uint32_t max_slowdown_percent = 250;
  bool prefix_cache = true;
  // For an encoder: a request is computed whole, in one step, and holds no blocks; it is one that
  // ends when it is computed, of a step's tokens at most. Nothing is preempted, cached or drafted.
  bool whole = false;
  HashKey hash_key;        // random per process, or that of all servers that share a store
  bool kv_events = false;  // what comes into the prefix cache and leaves it is noted

  // The requests that run at a time, whatever a step of them takes.
  uint32_t usual_batch() const { return sure_batch == 0 ? max_batch : sure_batch; }
};

class ContinuousBatchingScheduler {
 public:
  static Result<std::unique_ptr<ContinuousBatchingScheduler>> create(const SchedulerConfig& config);

  // What is wrong with a request whatever the state: the errors of submit() that do not depend on
  // who else is there. Callable from any thread.
  static Status check_spec(const SchedulerConfig& config, const RequestSpec& spec);

  Status submit(RequestSpec spec, TimeUs now);
  bool cancel(RequestId id, FinishReason reason);
  void cancel_all(FinishReason reason, std::vector<EndEvent>& ended);
  // From here on submit() answers kUnavailable; what is queued or runs goes on.
  void drain() { draining_ = true; }

  void plan(TimeUs now, StepPlan& plan);
  void commit(const StepResult& result, TimeUs now, StepEffects& effects);
  // Nothing for one that is not live or was not put off. Preempted, it is resumed anyway.
  void resume(RequestId id);

  // With kv_events: what has changed in the prefix cache since clear_kv_events(), in order. Whoever
  // asks for them takes them after every commit().
  std::span<const KvEvent> kv_events() const { return kv_.events(); }
  void clear_kv_events() { kv_.clear_events(); }
  uint32_t pool_blocks() const { return kv_.capacity(); }
  bool is_cached(BlockId id) const { return kv_.cached(id); }
  PrefixCache::Contents cached_contents(BlockId id) const { return kv_.contents(id); }

  bool idle() const { return by_id_.empty() && in_flight_count_ == 0; }
  // How many more requests the batch could take on, as far as the latest plan knows: none while the
  // head of the queue waits for KV blocks.
  uint32_t open_slots() const;
  SchedulerStats stats() const;
  Result<Explanation> explain(RequestId id, TimeUs now) const;
  // Appends an explanation of each of `ids` that is live; the queue is gone through once for all.
  void explain(std::span<const RequestId> ids, TimeUs now,
               std::vector<Explanation>& explanations) const;
  SchedulerView view(TimeUs now) const;
  // How many of these tokens the prefix cache has, from the first one on: what a router may know.
  uint32_t cached_tokens(std::span<const TokenId> tokens, const Hash128& salt) const;
  // Conservation of blocks, references, places and counts; callable at any moment, O(everything).
  Status check_invariants() const;

  const SchedulerConfig& config() const { return config_; }

 private:
  // A plan between plan() and commit().
  struct InFlight {
    struct Planned {
      BatchRequest* request;
      Segment segment;
    };
    uint64_t step = 0;
    StepLoad load;
    std::vector<Planned> segments;
  };
  // Who decodes in the plan being made, as far as prompts have to know.
  struct Streams {
    const BatchRequest* first = nullptr;  // by key
    Priority best_class = Priority::LOW;

    // Best key first.
    void add(const BatchRequest& stream) {
      if (first == nullptr) first = &stream;
      best_class = std::min(best_class, stream.priority);
    }
  };
  // Blocks that admitting the head of the queue takes, and blocks that can be had.
  struct Room {
    uint32_t needed = 0;
    uint32_t available = 0;
  };

  explicit ContinuousBatchingScheduler(const SchedulerConfig& config);

  // Questions (inspect.cpp)
  void view_blocks(SchedulerView& view) const;
  Explanation explain_one(const BatchRequest& request, TimeUs now) const;
  void number_queue() const;

  // Life and death
  Status validate(const RequestSpec& spec) const;
  uint32_t limit_of(const RequestSpec& spec) const;
  BatchRequest* take_slot();
  void enqueue(BatchRequest& request);
  void end(BatchRequest& request, FinishReason reason);
  void retire(BatchRequest& request);
  void drop_ended_from_batch();
  void commit_segment(BatchRequest& request, const Segment& segment, const SegmentResult& result,
                      StepEffects& effects);
  void put_off(BatchRequest& request, const Segment& segment);
  bool is_sound(const BatchRequest& request, const Segment& segment,
                const SegmentResult& result) const;
  void accept_tokens(BatchRequest& request, const SegmentResult& result, StepEffects& effects);
  void take_drafts(BatchRequest& request, const SegmentResult& result) const;
  bool in_vocabulary(TokenId token) const {
    return token >= 0 && static_cast<uint32_t>(token) < config_.vocab_size;
  }
  TimeUs advance(TimeUs now);

  // One step
  void expire(StepPlan& plan);
  StepLoad plan_decodes();
  Spares spares(const BatchRequest& prompt) const;
  void plan_prefills(StepBudget& budget);
  void plan_chunk(BatchRequest& request, StepBudget& budget);
  BatchRequest* likeliest_draft() const;
  void plan_drafts(StepBudget& budget, const StepLoad& decodes);
  bool has_room_for_draft(BatchRequest& request, uint32_t position);
  bool admit_head(StepBudget& budget);
  bool make_room_for_head(BatchRequest& head);
  bool batch_is_full() const;
  bool choose_victims(const BatchRequest& head, const Room& short_of);
  bool grow_or_preempt(BatchRequest& request, uint64_t tokens);
  void preempt(BatchRequest& request);
  void hold_back(BatchRequest& request);
  uint32_t look_up(BatchRequest& request);
  bool under_way(const Hash128& key) const;
  void emit(StepPlan& plan);

  SchedulerConfig config_;
  KvAllocator kv_;
  PriorityQueueWithAging queue_;
  DeadlineHeap deadlines_;
  CostModel cost_;

  std::deque<BatchRequest> slots_;
  std::vector<BatchRequest*> unused_slots_;
  std::unordered_map<RequestId, BatchRequest*>
      by_id_;  // live requests; never iterated for a decision

  std::vector<BatchRequest*> batch_;   // requests that run, in order of admission
  std::vector<BatchRequest*> by_key_;  // the same, best first
  std::vector<BatchRequest*>
      ending_;  // ended while a plan names them; hold blocks until it commits

  std::vector<InFlight> in_flight_;  // ring of `depth`
  uint32_t in_flight_first_ = 0;
  uint32_t in_flight_count_ = 0;

  // Keys of the blocks that plans not yet committed are computing, so that nobody computes one
  // twice.
  struct UnderWay {
    Hash128 key;
    uint64_t step;
  };
  std::vector<UnderWay> under_way_;

  // Scratch of plan(), kept for its memory.
  std::vector<RequestId> preempted_;
  std::vector<RequestId> admitted_;
  std::vector<BatchRequest*> prefills_;
  Streams streams_;
  std::vector<BatchRequest*> victims_;
  std::vector<BlockId> hits_;
  std::vector<uint32_t> tally_;  // by block: references that the chosen victims hold; 0 outside

  TimeUs now_ = 0;
  uint64_t step_ = 0;
  uint64_t committed_step_ = 0;
  uint64_t next_order_ = 0;
  std::array<TimeUs, kPriorities> asked_;  // by class: when the latest request came
  bool draining_ = false;
  uint64_t grew_in_step_ = 0;  // the batch, beyond what is sure
  TimeUs one_row_us_ = 0;      // what a step of one token took lately; 0: there was none
  Room head_room_;             // of the last attempt to admit the head of the queue
  SchedulerStats counters_;
};

}  // namespace skein
