// StepRunner: the data plane as the engine's loop sees it. A step is started and later finished;
// its rows run in one pass, and those that ask for it are sampled.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "engine/sampling/sampler.h"
#include "sched/step.h"

namespace skein {

struct RowTask {
  const RequestSampler* sampler = nullptr;  // nullptr: the row does not sample
  uint32_t position = 0;                    // of its first sample, from the prompt's first token on
};

struct RowOutput {
  Status status;                      // of this row alone
  std::vector<SampledToken> sampled;  // up to the first that is no draft, a stop token or the last
  std::vector<TokenId> drafts;        // guesses at what follows
  std::vector<float> hidden;          // where the row ends its request: its last token's state

  void reset() {
    status = {};
    sampled.clear();
    drafts.clear();
    hidden.clear();
  }
};

// No row can be run any more: the engine has to be made anew.
class RunnerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Used by one thread. Steps finish in the order of their starts.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // How many steps may be under way at a time.
  virtual uint32_t depth() const { return 1; }

  // tasks[i] belongs to rows[i]. Both, and the samplers, stay until the step is finished, but a
  // sampler may change between two calls: it is looked at within start() and finish() only. The
  // token of a row with token_from_previous is the one that its request sampled in the step before.
  // When it throws, no step was started.
  virtual void start(std::span<const PlanRow> rows, std::span<const RowTask> tasks) = 0;

  // Waits for the oldest step. outputs[i], which was reset, belongs to rows[i]. When it throws, the
  // step is over and no output counts; running the rows again, together or one by one, gives the
  // bits they would have had. Returns how much time went into the model itself, without building
  // the batch and sampling.
  virtual TimeUs finish(std::span<RowOutput> outputs) = 0;
};

}  // namespace skein
