// A simulated run: a seed decides the scheduler's limits, the load and the faults.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "base/time.h"
#include "sched/scheduler.h"

namespace skein::sim {

// Faults that a seed switches on or off.
enum class Fault : uint32_t {
  kCancel,         // clients hang up, in every state
  kStalledReader,  // a reader stops reading and is cut after a while
  kSegmentFault,   // a segment gives NaN
  kStepThrows,     // a step throws and is rerun segment by segment: one segment is to blame
  kStepFails,      // nothing of a step can be used
  kStepLate,       // a step takes long, and the world goes on meanwhile
  kLost,           // the runner is lost with all its steps, and the engine is made anew
  kNoMemory,       // operator new fails inside submit
  kClockSteps,     // the clock steps back, up to an hour
  kBadInput,       // empty and oversized prompts, ids out of range, duplicate ids
  kDeadlines,      // some requests have little time
  kDrain,          // the engine drains in mid-run and starts anew
  kUnload,         // the model is unloaded in mid-run and loaded again
  kFlood,          // bursts beyond the queue's limit
  kCount,
};

struct Faults {
  uint32_t bits = 0;
  bool has(Fault fault) const { return (bits >> static_cast<uint32_t>(fault) & 1) != 0; }
  void set(Fault fault) { bits |= 1U << static_cast<uint32_t>(fault); }
};

// How tests make operator new fail; a run without hooks leaves that fault out.
struct AllocationHooks {
  std::function<void(uint32_t)>
      fail_after;  // the n-th allocation of this thread from here on fails
  std::function<void()> disarm;
};

struct SimConfig {
  uint64_t seed = 0;
  uint32_t steps = 10'000;  // plans with segments
  uint32_t max_requests = UINT32_MAX;
  SchedulerConfig scheduler;
  Faults faults;
  AllocationHooks hooks;

  uint32_t row_us = 15;      // of a step, twenty times as much once: how fast the machine is
  uint32_t target_live = 8;  // requests kept live, waiting or running
  uint32_t tenants = 1;
  bool door = false;        // a QueueDoor stands before the scheduler
  bool background = false;  // the last tenant's requests are nobody's to wait for
  uint32_t system_prompt_tokens = 0;
  uint32_t max_prompt_tokens = 64;  // beyond the system prompt
  uint32_t max_answer_tokens = 64;
  uint32_t stop_permille = 5;        // chance of an end at each sample
  uint32_t draft_percent = 0;        // of the tokens that drafts guess, how many are right
  uint32_t unsampled_percent = 0;    // requests that end when they are computed
  uint32_t constrained_percent = 0;  // requests whose next token depends on the last one
  uint32_t follow_up_percent = 30;   // chance that an answer is followed by another turn
  bool keep_plan_log = false;
  bool keep_transcripts = false;
};

// The configuration that a seed stands for, with all its faults.
SimConfig random_config(uint64_t seed, uint32_t steps);

// The model's word after `index` generated tokens: a pure function of the request.
struct OracleSample {
  SegmentOutcome outcome = SegmentOutcome::kOk;
  TokenId token = kNoToken;
};
OracleSample oracle_sample(const SimConfig& config, uint64_t request_seed, uint32_t index);

// The words of a guesser that means no good after `index` generated tokens: some are right, some
// are wrong, some are no tokens at all, and there may be more than anybody can use.
std::vector<TokenId> oracle_drafts(const SimConfig& config, uint64_t request_seed, uint32_t index);
// And how likely it says they are, which is as little to be trusted; none: it is certain.
std::vector<uint16_t> oracle_odds(uint64_t request_seed, uint32_t index, size_t drafts);

// A request as its client and the oracle know it.
struct SimRequest {
  RequestId id;
  uint64_t seed = 0;
  uint32_t tenant = 0;
  Priority priority = Priority::NORMAL;
  TimeUs arrival = 0;
  TimeUs key = 0;
  TimeUs deadline = kNever;
  uint32_t prompt_tokens = 0;
  uint32_t limit_tokens = 0;
  bool ends_when_computed = false;
  bool wants_every_row = false;
  bool constrained = false;
  std::vector<TokenId> tokens;    // prompt and what was received
  std::vector<TokenId> drafts;    // what the last result guessed
  std::vector<uint64_t> digests;  // by position: of the tenant and all tokens up to there

  // The schedule as seen from outside.
  bool ended = false;
  bool in_batch = false;  // admitted, and not preempted since
  bool started = false;   // admitted at least once
  uint32_t segments_in_flight = 0;
  uint32_t planned = 0;
  uint32_t pending_samples = 0;
  uint32_t drafts_in_flight = 0;
  uint32_t table_blocks = 0;
  uint32_t planned_most = 0;  // the furthest end of its segments since it was admitted
  uint32_t preemptions = 0;
  uint64_t put_off_until = 0;         // turn of the loop; 0 = it may have a segment
  uint32_t again_to = 0;              // positions up to here may be computed twice: it was put off
  uint64_t reader_stalled_until = 0;  // plan number; 0 = reads

  void extend_digests();
  uint32_t generated() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

// The digest of a position, from the one before it.
uint64_t next_digest(uint64_t before, TokenId token);

Hash128 tenant_salt(uint32_t tenant);

// Makes the requests of a run.
class Workload {
 public:
  explicit Workload(const SimConfig& config) : config_(config), rng_(config.seed ^ 0x574f524b) {}

  SimRequest next();
  // An answer is complete: maybe its client goes on with another turn.
  void completed(const SimRequest& request);

 private:
  std::vector<TokenId> fresh_tokens(uint64_t seed, uint32_t count) const;

  const SimConfig& config_;
  Rng rng_;
  uint64_t next_id_ = 1;
  struct Turn {
    uint32_t tenant;
    std::vector<TokenId> tokens;
  };
  std::vector<Turn> turns_;
};

}  // namespace skein::sim
