// StepRing: the steps under way, oldest first, as many as the runner takes at a time.
//
// A step that cannot be started or that throws is run again segment by segment when its turn comes,
// and so are those that were started behind it, for they took tokens from it; a segment that throws
// alone has failed. RunnerLost passes through. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/loop/inference_service.h"
#include "engine/loop/snapshot.h"
#include "engine/loop/step_runner.h"
#include "engine/sampling/sampler.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/drafter.h"
#include "engine/speculation/speculation.h"
#include "sched/step.h"

namespace skein {

// A request as the engine knows it beside the scheduler. Its `request` is without the
// sampling, which is the sampler's, and without the prompt once a token was sent.
struct EngineRequest : Submission {
  EngineRequest(Submission&& submission, uint32_t vocab, Speculation guesses = Speculation::kOff)
      : Submission(std::move(submission)),
        sampler(std::move(request.sampling), vocab, request.prompt, request.form,
                request.thought_budget),
        speculation(guesses) {
    end.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  }

  RequestSampler sampler;
  std::unique_ptr<Drafter> drafter;  // from the first token on, where guesses are made
  DraftModel::Reader draft_reader;
  Pooler pooler;
  GenerationEnd end;
  TimeUs started = kNever;  // first admitted
  TimeUs first_token = kNever;
  uint32_t computed_tokens = 0;  // by the model, up to the first token
  TokenId last_token = kNoToken;
  Speculation speculation;

  bool ended() const { return stream == nullptr; }
  void guess(DraftMemory& memory, SegmentResult& result) noexcept;
  void remember_answer() noexcept;
};

// A step from its plan to its delivery. It keeps its requests: one of them may end while the step
// is under way, and the runner still looks at its sampler.
struct StepUnderWay {
  StepPlan plan;
  std::vector<std::shared_ptr<EngineRequest>> live;  // by segment, as are the others
  std::vector<const RequestSampler*> samplers;
  StepResult result;
  std::vector<SegmentDetails> details;
  TimeUs started = 0;
  bool runs = false;  // false: it is run segment by segment when its turn comes

  // Empty.
  StepOutput output();
  // Guesses at what follows the tokens that were sampled, where the runner has made none; by the
  // model too, where there is one. False: it failed, and is of no use any more.
  [[nodiscard]] bool guess(DraftMemory& memory, DraftModel* model) noexcept;
  // The way to a request's first token. What its segments did not have to compute was cached.
  void report_progress();
  // Hidden states to the poolers of their requests.
  void pool();
};

class StepRing {
 public:
  StepRing(std::unique_ptr<StepRunner> runner, uint32_t depth, uint32_t batch);

  uint32_t under_way() const { return under_way_; }
  // Whether a step may take a token of this request from one that is still under way.
  bool plans_ahead(const EngineRequest& live) const {
    return !live.request.form && runner_->samples_ahead(live.sampler);
  }
  std::optional<SamplerScratch> patient_scratch() const { return runner_->patient_scratch(); }
  // Not behind a step that waits to be run segment by segment: it would take tokens from that one.
  bool may_start();
  // The step that is planned next.
  StepUnderWay& next() { return at(under_way_); }
  // Starts next(), whose plan and live requests are there.
  void start(TimeUs now);
  // Waits for the outputs of the oldest step, which stays as it is until as many others were
  // started.
  StepUnderWay& finish();

  // Lets go of the runner and what it holds; there are no more steps.
  void end() { runner_.reset(); }

  // A turn of the caller: it starts steps, and finishes one. What it took is counted, by itself
  // where none of them computes anything but the next token of each request.
  void begin_turn();
  void end_turn(TimeUs took, EngineSnapshot& to) const;
  // What its steps have taken so far.
  void report(EngineSnapshot& to) const;

 private:
  StepUnderWay& at(uint32_t number) { return steps_[(first_ + number) % steps_.size()]; }
  void collect(StepUnderWay& step);
  void take_back_later_steps();
  void run_segments(StepUnderWay& step, const StepOutput& output);

  std::unique_ptr<StepRunner> runner_;
  std::vector<StepUnderWay> steps_;
  uint32_t first_ = 0;
  uint32_t under_way_ = 0;
  uint64_t reruns_ = 0;
  uint64_t model_time_us_ = 0;
  bool only_decodes_ = true;         // in this turn
  uint64_t waited_before_turn_ = 0;  // us
};

}  // namespace skein
