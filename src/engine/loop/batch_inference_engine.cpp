#include "engine/loop/batch_inference_engine.h"

#include <algorithm>
#include <exception>
#include <system_error>

#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

// Every live request sends one Submission and at most one Cancel, so neither can be refused for
// room.
size_t mailbox_capacity(const SchedulerConfig& config) {
  constexpr size_t kOthers = 256;
  return 2 * (size_t{config.max_queue} + config.max_batch) + kOthers;
}

// When live requests exist the scheduler always plans something; if it ever does not, look again
// soon instead of sleeping for ever.
constexpr TimeUs kIdlePatienceUs = 10 * kUsPerMs;

}  // namespace

Result<InferenceService::Owned<BatchInferenceEngine>> BatchInferenceEngine::create(
    std::unique_ptr<StepRunner> runner, EngineOptions options, const Clock& clock) {
  // The door decides who may wait. The scheduler counts those that were preempted, too.
  SchedulerConfig config = options.scheduler;
  config.max_queue = queue_places(config.max_queue, Priority::HIGH) + config.max_batch;
  config.depth = runner->depth();
  SKEIN_ASSIGN(auto scheduler, ContinuousBatchingScheduler::create(config));
  std::unique_ptr<DraftModel> draft_model;
  if (options.make_draft_model) {
    SKEIN_ASSIGN(draft_model, options.make_draft_model());
  }
  const std::shared_ptr<BatchInferenceEngine> engine(
      new BatchInferenceEngine(std::move(runner), std::move(scheduler), std::move(options), clock));
  engine->draft_model_ = std::move(draft_model);
  try {
    return start(engine, "engine");
  } catch (const std::system_error& error) {
    return unavailable("no thread for the engine: {}", error.what());
  }
}

BatchInferenceEngine::BatchInferenceEngine(std::unique_ptr<StepRunner> runner,
                                           std::unique_ptr<ContinuousBatchingScheduler> scheduler,
                                           EngineOptions options, const Clock& clock)
    : InferenceService(options, options.scheduler.usual_batch(), 1, clock),
      mailbox_(mailbox_capacity(scheduler->config())),
      failover_(std::move(options.hand_over), mailbox_capacity(scheduler->config())),
      kv_events_(scheduler->config().kv_events ? std::move(options.kv_events) : nullptr),
      scheduler_(std::move(scheduler)),
      steps_(std::move(runner), scheduler_->config().depth, scheduler_->config().max_batch),
      slow_draws_(steps_.patient_scratch(), [this] { mailbox_.wake(); }) {
  const uint32_t batch = scheduler_->config().max_batch;
  ended_.reserve(batch);
  open_slots_ = batch;
  if (kv_events_) kv_events_->begin(scheduler_->pool_blocks());
  counters_.scheduler = scheduler_->stats();
  InferenceService::publish(counters_);
}

void BatchInferenceEngine::serve() {
  const PatientScope patient;  // all requests depend on this thread
  try {
    while (!stopping()) {
      mailbox_.drain(messages_);
      for (Message& message : messages_) {
        std::visit([&](auto& m) { apply(m, clock_.now()); }, message);
      }
      if (loss_) throw RunnerLost(*loss_);
      answer_questions();
      resume_drawn();
      const TimeUs now = clock_.now();
      steps_.begin_turn();
      while (steps_.may_start() && start_step(clock_.now())) {
      }
      if (steps_.under_way() == 0) {
        publish();
        mailbox_.wait(scheduler_->idle() ? kNever : kIdlePatienceUs);
        continue;
      }
      finish_step();
      steps_.end_turn(clock_.now() - now, counters_);
      publish();
    }
    while (steps_.under_way() > 0) finish_step();
    shut();
  } catch (const std::exception& error) {
    try {
      fail(internal_error("the engine cannot go on: {}", error.what()));
    } catch (const std::exception&) {
      give_up();
    }
  }
  slow_draws_.stop();
  if (kv_events_) kv_events_->end();
  draft_model_ = nullptr;
  steps_.end();  // not with the last handle of a request: the device may have to be left
}

Status BatchInferenceEngine::accept(Submission submission) {
  if (mailbox_.push(std::move(submission)).ok()) return {};
  return unavailable("the engine has stopped");
}

void BatchInferenceEngine::cancel(RequestId id, FinishReason reason) {
  // Closed: whatever was live has ended, or was handed over.
  if (!mailbox_.push(Cancel{id, reason}).ok()) failover_.cancel(id, reason);
}

void BatchInferenceEngine::drain() {
  InferenceService::drain();
  (void)mailbox_.push(Drain{});  // refused only where the engine has stopped already
}

void BatchInferenceEngine::apply(Submission& message, TimeUs now) {
  const RequestId id = message.id;
  const std::shared_ptr<TokenStream> stream = message.stream;
  Status status;
  const uint64_t tenant = message.request.tenant;
  if (stream->ended()) {  // by the watchdog, while a step hung
    leave_queue(tenant);
    return end_unstarted(id, stream, FinishReason::kError, {});
  }
  try {
    RequestSpec spec = spec_of(message.request);
    spec.id = id;
    spec.prompt = message.request.prompt;
    spec.deadline = message.deadline;
    const Speculation speculation = options_.speculation_for(message.request);
    live_.emplace(id, std::make_shared<EngineRequest>(std::move(message),
                                                      options_.scheduler.vocab_size, speculation));
    spec.plans_ahead = speculation == Speculation::kOff && steps_.plans_ahead(*live_.at(id));
    status = scheduler_->submit(std::move(spec), now);
  } catch (const std::exception&) {
    status = {Code::kResourceExhausted, "out of memory"};
  }
  if (status.ok()) return;
  leave_queue(tenant);
  live_.erase(id);
  end_unstarted(id, stream, FinishReason::kError, std::move(status));
}

// The end of a request that the scheduler never had.
void BatchInferenceEngine::end_unstarted(RequestId id, const std::shared_ptr<TokenStream>& stream,
                                         FinishReason reason, Status status) {
  forget(id);
  GenerationEnd end;
  end.reason = reason;
  end.status = std::move(status);
  ++counters_.finished[static_cast<size_t>(end.reason)];
  ended_.emplace_back(stream, std::move(end));
}

void BatchInferenceEngine::apply(Cancel& message, TimeUs now) {
  if (scheduler_->cancel(message.id, message.reason)) finish(message.id, message.reason, now);
}

void BatchInferenceEngine::apply(Drain&, TimeUs) {
  scheduler_->drain();
}

// Takes note of what the plan decided beside its segments.
void BatchInferenceEngine::note_plan(const StepPlan& plan, TimeUs now) {
  for (const EndEvent& ended : plan.ended) finish(ended.request, ended.reason, now);
  for (const RequestId id : plan.preempted) ++live_.at(id)->end.preemptions;
  for (const RequestId id : plan.admitted) {
    EngineRequest& live = *live_.at(id);
    if (live.started != kNever) continue;
    live.started = now;
    live.end.queue_us = now - live.arrived;
    const Result<Explanation> explained = scheduler_->explain(id, now);
    if (explained.ok()) live.end.start_priority_milli = explained->effective_priority_milli;
    leave_queue(live.request.tenant);
  }
}

bool BatchInferenceEngine::start_step(TimeUs now) {
  StepUnderWay& step = steps_.next();
  scheduler_->plan(now, step.plan);
  note_plan(step.plan, now);
  if (step.plan.empty()) return false;
  for (const Segment& segment : step.plan.segments) {
    step.live.push_back(live_.at(segment.request));
  }
  const TimeUs started = clock_.now();
  if (steps_.under_way() == 0) watch_.set_step_start(started);
  steps_.start(started);
  return true;
}

void BatchInferenceEngine::finish_step() {
  StepUnderWay& step = steps_.finish();
  const TimeUs ended = clock_.now();
  watch_.set_step_start(steps_.under_way() > 0 ? ended : kNever);
  const bool hung = watch_.hung();
  commit(step, ended);
  deliver(step, ended);
  draw_put_off(step);
  step.live.clear();
  if (hung) drop_given_up(ended);
}

// The watchdog has ended them; what the step brought for them is not delivered.
void BatchInferenceEngine::drop_given_up(TimeUs now) {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) {
    if (live->stream->ended()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) {
    if (scheduler_->cancel(id, FinishReason::kError)) finish(id, FinishReason::kError, now);
  }
}

void BatchInferenceEngine::commit(StepUnderWay& step, TimeUs ended) {
  const std::vector<Segment>& segments = step.plan.segments;
  // Without the time that it waited for the step before.
  step.result.elapsed_us = ended - std::max(step.started, std::exchange(last_finish_, ended));
  for (size_t i = 0; i < segments.size(); ++i) {
    if (const Status& status = step.details[i].status; !status.ok()) {
      step.result.segments()[i].reset(SegmentOutcome::kFault);
      // What a request asked for itself, such as a form that no token fits, is no fault.
      if (status.code() == Code::kInvalidArgument || status.code() == Code::kOutOfRange) continue;
      ++counters_.faults;
      log_error("request {} failed: {}", segments[i].request.value, status.message());
    }
  }
  if (!step.guess(draft_memory_, draft_model_.get())) draft_model_ = nullptr;
  scheduler_->commit(step.result, ended, effects_);
  if (kv_events_) kv_events_->add(*scheduler_);
  scheduler_->clear_kv_events();
  counters_.last_step_us = step.result.elapsed_us;
  counters_.step_us.add(static_cast<uint64_t>(step.result.elapsed_us));
  counters_.step_segments.add(segments.size());
  counters_.step_tokens.add(step.plan.tokens);
}

// Tokens and ends to the streams. Both come in the order of the plan's segments.
void BatchInferenceEngine::deliver(StepUnderWay& step, TimeUs now) {
  step.report_progress();
  step.pool();
  const std::vector<Segment>& segments = step.plan.segments;
  size_t i = 0;
  size_t sample = 0;
  for (const TokenEvent& event : effects_.tokens) {
    for (; segments[i].request != event.request; ++i) sample = 0;
    const std::vector<SampledToken>& sampled = step.details[i].sampled;
    deliver_token(*step.live[i], event, sampled.empty() ? nullptr : &sampled[sample++], now);
  }
  i = 0;
  for (const EndEvent& event : effects_.ended) {
    while (segments[i].request != event.request) ++i;
    if (event.reason == FinishReason::kStop) step.live[i]->end.hidden = step.live[i]->pooler.take();
    finish(event.request, event.reason, now, step.details[i].status);
  }
  // Ends are told by themselves.
  for (const auto& live : step.live) {
    if (!live->ended() && !live->stream->tell()) cut_off(live->id, now);
  }
}

void BatchInferenceEngine::deliver_token(EngineRequest& live, const TokenEvent& event,
                                         const SampledToken* sampled, TimeUs now) {
  if (live.ended()) return;  // with the token before
  if (live.first_token == kNever) {
    live.first_token = now;
    live.request.prompt = {};
    live.stream->set_cached(live.end.cached_tokens);
  }
  live.sampler.accept(event.token);
  live.last_token = event.token;
  ++live.end.generated_tokens;
  TokenLogprob logprobs[1 + kMaxTopLogprobs];
  const size_t count = sampled != nullptr ? sampled->write_logprobs(logprobs) : 0;
  if (!live.stream->add(event.token, {logprobs, count}, now, now - options_.stall_timeout_us)) {
    cut_off(event.request, now);
  }
}

// One whose tokens nobody takes, or can be told of.
void BatchInferenceEngine::cut_off(RequestId request, TimeUs now) {
  ++counters_.stalled_readers;
  // It may have ended in this very step; then its own end counts.
  if (scheduler_->cancel(request, FinishReason::kClient)) {
    finish(request, FinishReason::kClient, now, resource_exhausted("nobody reads the answer"));
  }
}

void BatchInferenceEngine::finish(RequestId id, FinishReason reason, TimeUs now, Status status) {
  const auto it = live_.find(id);
  SKEIN_CHECK(it != live_.end(), "request {} ended but is not live", id.value);
  EngineRequest& live = *it->second;
  GenerationEnd& end = live.end;
  end.reason = reason;
  end.status = std::move(status);
  if (live.started == kNever) {
    end.queue_us = now - live.arrived;
    leave_queue(live.request.tenant);
  } else if (live.first_token == kNever) {
    end.prefill_us = now - live.started;
  } else {
    end.prefill_us = live.first_token - live.started;
    end.decode_us = now - live.first_token;
  }
  if (is_completed(reason)) live.remember_answer();
  if (live.started != kNever) note_end(now);
  ++counters_.finished[static_cast<size_t>(reason)];
  ended_.emplace_back(std::move(live.stream), std::move(end));
  forget(id);
  live_.erase(it);
}

// The snapshot first: whoever has seen an end finds it counted.
void BatchInferenceEngine::publish() {
  counters_.scheduler = scheduler_->stats();
  steps_.report(counters_);
  watch_.set_recovered();
  if (const uint32_t open = scheduler_->open_slots(); open != open_slots_) {
    open_slots_ = open;
    set_open_slots(open);
  }
  InferenceService::publish(counters_);
  for (auto& [stream, end] : ended_) stream->end(std::move(end));
  ended_.clear();
}

// How the engine's loop ends: in order, or because it cannot go on.

// The orderly end: nobody is left without one.
void BatchInferenceEngine::shut() {
  mailbox_.close();
  mailbox_.drain(messages_);
  const TimeUs now = clock_.now();
  for (Message& message : messages_) {
    if (const Submission* submit = std::get_if<Submission>(&message)) {
      end_unstarted(submit->id, submit->stream, FinishReason::kDrained, {});
    } else {
      std::visit([&](auto& m) { apply(m, now); }, message);
    }
  }
  answer_questions();
  std::vector<EndEvent> ended;
  scheduler_->cancel_all(FinishReason::kDrained, ended);
  for (const EndEvent& event : ended) finish(event.request, event.reason, now);
  counters_.state = EngineState::kStopped;
  publish();
}

// The runner is lost. What has sent nothing can go elsewhere; the rest ends here.
void BatchInferenceEngine::fail(const Status& why) {
  log_error("{}", why.message());
  watch_.set_step_start(kNever);
  const TimeUs now = clock_.now();
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  std::vector<Submission> silent;
  for (const RequestId id : ids) {
    EngineRequest& live = *live_.at(id);
    if (live.first_token != kNever || !failover_.possible() || live.stream->ended()) {
      finish(id, FinishReason::kError, now, why);
      continue;
    }
    live.request.sampling = live.sampler.params();
    silent.push_back(std::move(static_cast<Submission&>(live)));
  }
  live_.clear();
  counters_.state = EngineState::kFailed;
  publish();
  // From here on nobody can submit. What came between the last step and now has sent nothing
  // either; who gave up meanwhile is not served by the next one.
  failover_.begin();
  mailbox_.close();
  mailbox_.drain(messages_);
  for (Message& message : messages_) {
    if (Submission* submit = std::get_if<Submission>(&message)) {
      silent.push_back(std::move(*submit));
    } else if (const Cancel* cancel = std::get_if<Cancel>(&message)) {
      failover_.cancel(cancel->id, cancel->reason);
    }
  }
  refuse_questions(unavailable("the engine has failed"));
  if (failover_.possible()) {
    live_count_.fetch_sub(static_cast<uint32_t>(silent.size()));
    failover_.hand_over(std::move(silent), why);
    watch_.clear();  // only now: had it thrown, they would have to be told
  } else {
    for (const Submission& submission : silent) {
      end_unstarted(submission.id, submission.stream, FinishReason::kError, why);
    }
    publish();
  }
}

// Not even the orderly failure was possible: memory is short. Whoever is live is told, and whoever
// owns the engine that it needs another one.
void BatchInferenceEngine::give_up() noexcept {
  static constexpr const char* kWhy = "engine failed";  // short enough not to allocate
  mailbox_.close();
  set_state(EngineState::kFailed);
  watch_.end_all(kWhy);
  live_count_ = 0;
  const auto attempt = [](auto&& action) {
    try {
      action();
    } catch (const std::exception&) {
      // The next one may fare better.
    }
  };
  attempt([&] { refuse_questions(unavailable("the engine has failed")); });
  attempt([&] {
    if (failover_.possible()) failover_.hand_over({}, {Code::kInternal, kWhy});
  });
}

}  // namespace skein
