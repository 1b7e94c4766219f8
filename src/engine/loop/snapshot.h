// EngineSnapshot: what an engine looked like after its latest step. A plain value.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "sched/types.h"

namespace skein {

enum class EngineState : uint8_t {
  kRunning,
  kDraining,  // takes nothing new
  kHung,      // a step has not come back within the step timeout
  kFailed,    // gone for good; whoever owns it makes another one
  kStopped,
};
constexpr const char* name_of(EngineState state) {
  constexpr const char* kNames[] = {"running", "draining", "hung", "failed", "stopped"};
  return kNames[static_cast<size_t>(state)];
}

// A histogram as a plain value: bucket i counts what is at most 2^(first + i) and more than the one
// before it, the last one all that is larger.
struct DoublingBuckets {
  static constexpr size_t kCount = 20;
  uint32_t first = 0;
  uint64_t counts[kCount] = {};
  uint64_t sum = 0;

  void add(uint64_t value) {
    const uint64_t below = value == 0 ? 0 : (value - 1) >> first;
    ++counts[std::min<size_t>(static_cast<size_t>(std::bit_width(below)), kCount - 1)];
    sum += value;
  }
};

// What the forms of a model have cost.
struct FormCounts {
  static constexpr size_t kCodes = 6;  // of grammar::FormCode
  DoublingBuckets mask_ns{.first = 10};
  DoublingBuckets compile_us{.first = 5};
  uint64_t hits = 0;    // forms that were compiled before
  uint64_t misses = 0;  // and those that were not
  uint64_t refused[kCodes] = {};
};

struct EngineSnapshot {
  EngineState state = EngineState::kRunning;
  uint32_t live = 0;  // requests that were accepted and have not ended
  SchedulerStats scheduler;

  uint64_t loop_time_us = 0;   // from plan to delivery, of all steps together
  uint64_t model_time_us = 0;  // of that, in the model: not in plan, build, sample, commit, deliver
  uint64_t waited_us = 0;      // of that, the engine's thread computed the model or waited for it
  uint64_t decode_steps = 0;   // steps of one token of each request, started and finished alike
  uint64_t decode_us = 0;      // the engine's thread in these, without waited_us
  uint64_t device_pauses = 0;  // steps that were started behind others on a device
  uint64_t device_pause_ns = 0;  // in which it had nothing to do before them
  TimeUs last_step_us = 0;
  DoublingBuckets step_us{.first = 8};
  DoublingBuckets step_tokens;
  DoublingBuckets step_segments;
  uint64_t finished[kFinishReasons] = {};  // by FinishReason
  uint64_t reruns = 0;                     // steps that threw and were run again in pieces
  uint64_t faults = 0;                     // segments that ended with an error
  uint64_t stalled_readers = 0;            // requests that were cut because nobody read
  uint64_t put_off = 0;                    // tokens that were drawn beside the steps
  FormCounts forms;                        // of the model, whichever engine served them
};

// Adds the counts of an engine that is gone to those of its successor. Gauges are of one moment and
// stay as they are.
void add_counts(EngineSnapshot& to, const EngineSnapshot& gone);

}  // namespace skein
