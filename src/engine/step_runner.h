// StepRunner: the data plane as the engine's loop sees it. One call runs all rows of a step in one
// pass and samples those that ask for it.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "base/status.h"
#include "base/time.h"
#include "engine/sampler.h"
#include "sched/step.h"

namespace skein {

struct RowTask {
  const RequestSampler* sampler = nullptr;  // nullptr: the row does not sample
  uint32_t position = 0;                    // of the sampled token, from the prompt's first one on
};

struct RowOutput {
  Status status;  // of this row alone
  SampledToken sampled;
};

// No row can be run any more: the engine has to be made anew.
class RunnerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // outputs[i] and tasks[i] belong to rows[i]. When it throws, no output counts; running the rows
  // again, together or one by one, gives the bits they would have had. Returns how much of its time
  // went into the model itself, without building the batch and sampling.
  virtual TimeUs run(std::span<const PlanRow> rows, std::span<const RowTask> tasks,
                     std::span<RowOutput> outputs) = 0;
};

}  // namespace skein
