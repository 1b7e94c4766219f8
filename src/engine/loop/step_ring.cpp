#include "engine/loop/step_ring.h"

#include <algorithm>
#include <exception>
#include <new>

#include "base/log.h"

namespace skein {

StepRing::StepRing(std::unique_ptr<StepRunner> runner, uint32_t depth, uint32_t batch)
    : runner_(std::move(runner)), steps_(depth) {
  for (StepUnderWay& step : steps_) {
    step.live.reserve(batch);
    step.samplers.reserve(batch);
    step.result.reset(0, batch);
    for (SegmentResult& result : step.result.segments()) {
      result.tokens.reserve(1 + Drafter::kMostDrafts);
      result.drafts.reserve(Drafter::kMostDrafts);
      result.odds.reserve(Drafter::kMostDrafts);
    }
    step.details.resize(batch);
  }
}

StepOutput StepUnderWay::output() {
  const size_t count = plan.segments.size();
  result.reset(plan.step, count);
  for (size_t i = 0; i < count; ++i) details[i].reset();
  return {result.segments(), std::span(details).first(count)};
}

// Where memory is short it goes on without.
void EngineRequest::guess(DraftMemory& memory, SegmentResult& result) noexcept try {
  if (drafter == nullptr) {
    drafter = std::make_unique<Drafter>(request.prompt, memory.of(request.tenant, request.salt));
  }
  drafter->follow(result.tokens, result.drafts, result.odds);
} catch (const std::bad_alloc&) {
  drafter = nullptr;
  speculation = Speculation::kOff;
  result.drafts.clear();
  result.odds.clear();
}

void EngineRequest::remember_answer() noexcept try {
  if (drafter != nullptr) drafter->remember_answer();
} catch (const std::bad_alloc&) {
  // Then the next answers are guessed from less.
}

bool StepUnderWay::guess(DraftMemory& memory, DraftModel* model) noexcept try {
  std::vector<DraftModel::Wish> wishes;
  for (size_t i = 0; i < live.size(); ++i) {
    EngineRequest& request = *live[i];
    SegmentResult& what = result.segments()[i];
    const bool goes_on =
        request.speculation != Speculation::kOff && !request.ended() && !what.tokens.empty();
    if (!goes_on || !what.drafts.empty()) continue;
    request.guess(memory, what);
    if (model == nullptr || request.drafter == nullptr) continue;
    if (request.speculation != Speculation::kAuto || what.outcome != SegmentOutcome::kOk) continue;
    if (request.request.form != nullptr) continue;  // masks may take long, and others wait here
    wishes.push_back({&request.draft_reader, request.drafter->text(), what.tokens, &request.sampler,
                      &what.drafts, &what.odds});
  }
  if (!wishes.empty()) model->guess(wishes);
  return true;
} catch (const std::exception& error) {
  log_warning("the draft model failed and is not asked any more: {}", error.what());
  return false;
}

void StepUnderWay::report_progress() {
  for (size_t i = 0; i < live.size(); ++i) {
    const Segment& segment = plan.segments[i];
    EngineRequest& request = *live[i];
    GenerationEnd& end = request.end;
    if (request.ended() || request.first_token != kNever) continue;
    request.computed_tokens += segment.count;
    ++end.prefill_chunks;
    end.cached_tokens = end.prompt_tokens - std::min(end.prompt_tokens, request.computed_tokens);
    if (request.request.reports_progress) request.stream->progress(segment.start + segment.count);
  }
}

void StepUnderWay::pool() {
  for (size_t i = 0; i < live.size(); ++i) {
    const std::vector<float>& hidden = details[i].hidden;
    EngineRequest& request = *live[i];
    if (hidden.empty() || request.ended()) continue;
    const Segment& segment = plan.segments[i];
    request.pooler.add(request.request.pooling, segment.start, segment.count, hidden);
  }
}

bool StepRing::may_start() {
  return under_way_ == 0 ||
         (under_way_ < steps_.size() && at(under_way_ - 1).runs && runner_->takes_another());
}

void StepRing::start(TimeUs now) {
  StepUnderWay& step = next();
  step.samplers.clear();
  for (const auto& live : step.live) step.samplers.push_back(&live->sampler);
  step.started = now;
  step.runs = false;
  only_decodes_ = only_decodes_ && step.plan.decodes();
  ++under_way_;
  try {
    runner_->start(step.plan.segments, step.samplers);
    step.runs = true;
  } catch (const RunnerLost&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("step {} could not be started: {}", step.plan.step, error.what());
    ++reruns_;
  }
}

void StepRing::begin_turn() {
  only_decodes_ = true;
  waited_before_turn_ = runner_->waits().thread_us;
}

void StepRing::end_turn(TimeUs took, EngineSnapshot& to) const {
  const auto all = static_cast<uint64_t>(took);
  to.loop_time_us += all;
  if (!only_decodes_) return;
  ++to.decode_steps;
  to.decode_us += all - std::min(all, runner_->waits().thread_us - waited_before_turn_);
}

StepUnderWay& StepRing::finish() {
  StepUnderWay& step = at(0);
  only_decodes_ = only_decodes_ && step.plan.decodes();
  collect(step);
  first_ = (first_ + 1) % static_cast<uint32_t>(steps_.size());
  --under_way_;
  return step;
}

void StepRing::report(EngineSnapshot& to) const {
  to.reruns = reruns_;
  to.model_time_us = model_time_us_;
  if (runner_ == nullptr) return;  // it was reported before
  const StepWaits waits = runner_->waits();
  to.waited_us = waits.thread_us;
  to.device_pauses = waits.pauses;
  to.device_pause_ns = waits.pause_ns;
}

// Runs the segments of the oldest step all at once or, if that fails, each alone.
void StepRing::collect(StepUnderWay& step) {
  const StepOutput output = step.output();
  if (!step.runs) return run_segments(step, output);
  try {
    model_time_us_ += static_cast<uint64_t>(runner_->finish(output));
    return;
  } catch (const RunnerLost&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("step {} failed and is run again segment by segment: {}", step.plan.step,
                error.what());
    ++reruns_;
  }
  take_back_later_steps();
  run_segments(step, step.output());
}

// They took tokens from a step that failed. They are over, and run again in their turn.
void StepRing::take_back_later_steps() {
  for (uint32_t i = 1; i < under_way_; ++i) {
    StepUnderWay& later = at(i);
    if (!std::exchange(later.runs, false)) continue;
    try {
      (void)runner_->finish(later.output());
    } catch (const RunnerLost&) {
      throw;
    } catch (const std::exception&) {
      // Nothing of it counts anyway.
    }
  }
}

// The tokens that the step before was to sample are known by now.
void StepRing::run_segments(StepUnderWay& step, const StepOutput& output) {
  for (size_t i = 0; i < step.plan.segments.size(); ++i) {
    if (step.live[i]->ended()) continue;
    Segment segment = step.plan.segments[i];
    if (std::exchange(segment.token_from_previous, false)) {
      segment.tokens = {&step.live[i]->last_token, 1};
    }
    try {
      runner_->start({&segment, 1}, {&step.samplers[i], 1});
      model_time_us_ += static_cast<uint64_t>(
          runner_->finish({output.results.subspan(i, 1), output.details.subspan(i, 1)}));
    } catch (const RunnerLost&) {
      throw;
    } catch (const std::exception& error) {
      output.details[i].status = internal_error("{}", error.what());
    }
  }
}

}  // namespace skein
