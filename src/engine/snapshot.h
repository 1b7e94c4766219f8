// EngineSnapshot: what an engine looked like after its latest step. A plain value.
#pragma once

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

struct EngineSnapshot {
  EngineState state = EngineState::kRunning;
  uint32_t live = 0;  // requests that were accepted and have not ended
  SchedulerStats scheduler;

  uint64_t loop_time_us = 0;   // from plan to delivery, of all steps together
  uint64_t model_time_us = 0;  // of that, in the model and the sampler
  uint32_t last_step_tokens = 0;
  uint32_t last_step_rows = 0;
  TimeUs last_step_us = 0;
  uint64_t finished[kFinishReasons] = {};  // by FinishReason
  uint64_t reruns = 0;                     // steps that threw and were run again row by row
  uint64_t faults = 0;                     // rows that ended with an error
  uint64_t stalled_readers = 0;            // requests that were cut because nobody read
};

}  // namespace skein
