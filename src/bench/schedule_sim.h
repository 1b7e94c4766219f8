// The real scheduler on a virtual clock: who would wait how long under a load, without a model.
//
// A step takes a fixed time and a time per token; everything else is the scheduler that serves. The
// same items and options give the same answer, to the microsecond.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "bench/result.h"
#include "bench/workload.h"
#include "sched/scheduler.h"

namespace skein::bench {

struct SimLoad {
  SchedulerConfig scheduler;
  TimeUs step_us = 5'000;   // of every step
  TimeUs token_us = 1'000;  // of every token in it
};

struct ClassWaits {
  Priority priority = Priority::NORMAL;
  uint64_t requests = 0;  // that ran to their end
  uint64_t refused = 0;   // the queue was full
  Spread queue_ms;        // until it first ran
  Spread first_token_ms;
  Spread latency_ms;
};

struct SimOutcome {
  std::vector<ClassWaits> classes;  // those that came
  double seconds = 0;               // on the virtual clock
  uint64_t steps = 0;
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_hit_tokens = 0;
  double mean_batch = 0;  // rows in a step
};

// kOutOfRange names an item that can never fit. Items are sorted by arrival.
Result<SimOutcome> simulate_schedule(std::span<const WorkItem> items, const SimLoad& load);

// A load where there is no trace: prompts of 16 to 512 tokens, answers of 16 to 256, classes by
// their shares of a hundred, Poisson arrivals.
struct SyntheticLoad {
  uint32_t requests = 1000;
  double rate = 2;
  uint32_t high_percent = 20, low_percent = 30;  // the rest is normal
  uint64_t seed = 1;
};
std::vector<WorkItem> synthetic_items(const SyntheticLoad& load);

}  // namespace skein::bench
