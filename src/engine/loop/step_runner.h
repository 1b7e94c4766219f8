// StepRunner: the data plane as the engine's loop sees it. A step is started and later finished;
// its segments run in one pass, and those that ask for it are sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "engine/sampling/sampler.h"
#include "sched/step.h"

namespace skein {

// The part of a segment's result that the scheduler need not know.
struct SegmentDetails {
  Status status;                      // not ok: the segment failed, and its result does not count
  std::vector<SampledToken> sampled;  // with SamplingParams::logprobs: its tokens
  // Hidden states, finite: those of all its rows where the segment wants every one, else that of
  // its last row where it ends its request.
  std::vector<float> hidden;
  // Of one that was put off: what its token is to be drawn from, unless it is being drawn already.
  std::vector<float> logits;

  void reset() {
    status = {};
    sampled.clear();
    hidden.clear();
    logits.clear();
  }
};

// A runner writes what came of a step here; both are by segment.
struct StepOutput {
  std::span<SegmentResult> results;
  std::span<SegmentDetails> details;
};

// What a runner's steps have waited for, all together.
struct StepWaits {
  uint64_t thread_us = 0;  // the caller's thread for the model: it computed it, or waited for it
  // A device that had nothing to do before a step which was started behind another one.
  uint64_t pauses = 0;
  uint64_t pause_ns = 0;
};

// Nothing can be run any more: the engine has to be made anew.
class RunnerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Used by one thread. Steps finish in the order of their starts.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // What tokens that were put off are drawn with; nullopt where it puts off none.
  virtual std::optional<SamplerScratch> patient_scratch() const { return std::nullopt; }
  // How many steps may be under way at a time.
  virtual uint32_t depth() const { return 1; }
  // Whether the token after one that this sampler has yet to see can be computed already.
  virtual bool samples_ahead(const RequestSampler& /*sampler*/) const { return true; }
  // Whether a step may be started behind those under way; always where there is none.
  virtual bool takes_another() const { return true; }

  // samplers[i] belongs to segments[i]. Both stay until the step is finished, but a sampler may
  // change between two calls: it is looked at within start() and finish() only. The token of a
  // segment with token_from_previous is the one that its request sampled in the step before. When
  // it throws, no step was started.
  virtual void start(std::span<const Segment> segments,
                     std::span<const RequestSampler* const> samplers) = 0;

  // Waits for the oldest step. `output`, which was reset, is as long as its segments. When it
  // throws, the step is over and no output counts; running the segments again, together or one by
  // one, gives the bits they would have had. Returns how much time went into the model itself,
  // without building the batch and sampling.
  virtual TimeUs finish(const StepOutput& output) = 0;
  virtual StepWaits waits() const { return {}; }
};

}  // namespace skein
