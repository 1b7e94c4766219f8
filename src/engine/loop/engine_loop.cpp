// The loop: plan, run, commit, deliver.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "engine/loop/engine_core.h"

namespace skein {
namespace {

// When live requests exist the scheduler always plans something; if it ever does not, look again
// soon instead of sleeping for ever.
constexpr TimeUs kIdlePatienceUs = 10 * kUsPerMs;

}  // namespace

void EngineCore::run() {
  const PatientScope patient;  // all requests depend on this thread
  try {
    while (!stopping_) {
      mailbox_.drain(messages_);
      for (Message& message : messages_) {
        std::visit([&](auto& m) { apply(m, clock_.now()); }, message);
      }
      answer_explains();
      const TimeUs now = clock_.now();
      while (may_start() && start_step(clock_.now())) {
      }
      if (under_way_ == 0) {
        publish();
        mailbox_.wait(scheduler_->idle() ? kNever : kIdlePatienceUs);
        continue;
      }
      finish_step();
      counters_.loop_time_us += static_cast<uint64_t>(clock_.now() - now);
      publish();
    }
    while (under_way_ > 0) finish_step();
    shut();
  } catch (const std::exception& error) {
    try {
      fail(internal_error("the engine cannot go on: {}", error.what()));
    } catch (const std::exception&) {
      give_up();
    }
  }
  const std::lock_guard lock(stopped_mutex_);
  stopped_ = true;
  stopped_changed_.notify_all();
}

EngineCore::Live::Live(Submit&& submit, uint32_t vocab)
    : stream(std::move(submit.stream)),
      sampler(std::move(submit.request.sampling), vocab, submit.request.prompt,
              submit.request.constraint),
      request(std::move(submit.request)),
      arrived(submit.arrived) {
  end.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
}

void EngineCore::apply(Submit& message, TimeUs now) {
  const RequestId id = message.id;
  const std::shared_ptr<TokenStream> stream = message.stream;
  Status status;
  const uint64_t tenant = message.request.tenant;
  if (stream->ended()) {  // by the watchdog, while a step hung
    leave(tenant);
    return end_unstarted(id, stream, FinishReason::kError, {});
  }
  try {
    RequestSpec spec;
    spec.id = id;
    spec.priority = message.request.priority;
    spec.prompt = message.request.prompt;
    spec.max_new_tokens = message.request.max_tokens;
    spec.salt = message.request.salt;
    spec.ends_when_computed = message.request.wants_hidden;
    spec.plans_ahead = !message.request.constraint && options_.scheduler.step_drafts == 0;
    const TimeUs timeout_us = message.request.timeout_us;
    if (timeout_us < kNever - message.arrived) spec.deadline = message.arrived + timeout_us;
    auto live = std::make_shared<Live>(std::move(message), options_.scheduler.vocab_size);
    live->deadline = spec.deadline;
    live_.emplace(id, std::move(live));
    status = scheduler_->submit(std::move(spec), now);
  } catch (const std::exception&) {
    status = {Code::kResourceExhausted, "out of memory"};
  }
  if (status.ok()) return;
  leave(tenant);
  live_.erase(id);
  end_unstarted(id, stream, FinishReason::kError, std::move(status));
}

// The end of a request that the scheduler never had.
void EngineCore::end_unstarted(RequestId id, const std::shared_ptr<TokenStream>& stream,
                               FinishReason reason, Status status) {
  unwatch(id);
  GenerationEnd end;
  end.reason = reason;
  end.status = std::move(status);
  live_count_.fetch_sub(1);
  ++counters_.finished[static_cast<size_t>(end.reason)];
  ended_.emplace_back(stream, std::move(end));
}

void EngineCore::apply(Cancel& message, TimeUs now) {
  if (scheduler_->cancel(message.id, message.reason)) finish(message.id, message.reason, now);
}

void EngineCore::answer_explains() {
  for (Explain& asked : take_explains(kNever)) {
    try {
      std::vector<Explanation> explanations;
      explanations.reserve(asked.ids.size());
      scheduler_->explain(asked.ids, clock_.now(), explanations);
      asked.done(std::move(explanations));
    } catch (const std::exception& error) {
      log_error("{} requests could not be explained: {}", asked.ids.size(), error.what());
    }
  }
}

void EngineCore::apply(Drain&, TimeUs) {
  scheduler_->drain();
}

// What the plan decided beside its rows.
void EngineCore::note_plan(const StepPlan& plan, TimeUs now) {
  for (const EndEvent& ended : plan.ended) finish(ended.request, ended.reason, now);
  for (const RequestId id : plan.preempted) ++live_.at(id)->end.preemptions;
  for (const RequestId id : plan.admitted) {
    Live& live = *live_.at(id);
    if (live.started != kNever) continue;
    live.started = now;
    live.end.queue_us = now - live.arrived;
    const Result<Explanation> explained = scheduler_->explain(id, now);
    if (explained.ok()) live.end.start_priority_milli = explained->effective_priority_milli;
    leave(live.request.tenant);
  }
}

// Not behind a step that waits to be run row by row: it would take tokens from that one.
bool EngineCore::may_start() {
  if (under_way_ == 0) return true;
  return under_way_ < steps_.size() && step_under_way(under_way_ - 1).runs;
}

bool EngineCore::start_step(TimeUs now) {
  Step& step = step_under_way(under_way_);
  scheduler_->plan(now, step.plan);
  note_plan(step.plan, now);
  if (step.plan.empty()) return false;
  step.tasks.clear();
  for (const PlanRow& row : step.plan.rows) {
    const std::shared_ptr<Live>& live = step.live.emplace_back(live_.at(row.request));
    const auto position = static_cast<uint32_t>(row.start + row.count - row.drafts.size());
    step.tasks.push_back(row.samples > 0 ? RowTask{&live->sampler, position} : RowTask{});
  }
  step.started = clock_.now();
  if (under_way_++ == 0) watch_from(step.started);
  start(step);
  return true;
}

void EngineCore::start(Step& step) {
  step.runs = false;
  try {
    runner_->start(step.plan.rows, step.tasks);
    step.runs = true;
  } catch (const RunnerLost&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("step {} could not be started: {}", step.plan.step, error.what());
    ++counters_.reruns;
  }
}

void EngineCore::finish_step() {
  Step& step = step_under_way(0);
  collect(step);
  const TimeUs ended = clock_.now();
  first_step_ = (first_step_ + 1) % static_cast<uint32_t>(steps_.size());
  watch_from(--under_way_ > 0 ? ended : kNever);
  const bool hung = given_up();
  commit(step, ended);
  deliver(step, ended);
  step.live.clear();
  if (hung) drop_given_up(ended);
}

// The watchdog has ended them; what the step brought for them is not delivered.
void EngineCore::drop_given_up(TimeUs now) {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) {
    if (live->stream->ended()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) {
    if (scheduler_->cancel(id, FinishReason::kError)) finish(id, FinishReason::kError, now);
  }
}

// The outputs of the oldest step: of all rows at once or, if it fails, of each alone.
void EngineCore::collect(Step& step) {
  const std::span<RowOutput> outputs(step.outputs.data(), step.plan.rows.size());
  for (RowOutput& output : outputs) output.reset();
  if (!step.runs) return run_rows(step);
  try {
    counters_.model_time_us += static_cast<uint64_t>(runner_->finish(outputs));
    return;
  } catch (const RunnerLost&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("step {} failed and is run again row by row: {}", step.plan.step, error.what());
    ++counters_.reruns;
  }
  take_back_later_steps();
  run_rows(step);
}

// They took tokens from a step that failed. They are over, and run again in their turn.
void EngineCore::take_back_later_steps() {
  for (uint32_t i = 1; i < under_way_; ++i) {
    Step& later = step_under_way(i);
    if (!std::exchange(later.runs, false)) continue;
    try {
      (void)runner_->finish({later.outputs.data(), later.plan.rows.size()});
    } catch (const RunnerLost&) {
      throw;
    } catch (const std::exception&) {
      // Nothing of it counts anyway.
    }
  }
}

// Each row alone. What was to be sampled by the step before is known by now.
void EngineCore::run_rows(Step& step) {
  for (size_t i = 0; i < step.plan.rows.size(); ++i) {
    if (step.live[i]->ended()) continue;
    RowOutput& output = step.outputs[i];
    output.reset();
    PlanRow row = step.plan.rows[i];
    if (std::exchange(row.token_from_previous, false)) row.tokens = {&step.live[i]->last_token, 1};
    try {
      runner_->start({&row, 1}, {&step.tasks[i], 1});
      counters_.model_time_us += static_cast<uint64_t>(runner_->finish({&output, 1}));
    } catch (const RunnerLost&) {
      throw;
    } catch (const std::exception& error) {
      output.status = internal_error("{}", error.what());
    }
  }
}

void EngineCore::watch_from(TimeUs started) {
  const std::lock_guard lock(step_mutex_);
  step_started_ = started;
}

bool EngineCore::given_up() {
  const std::lock_guard lock(step_mutex_);
  return std::exchange(step_given_up_, false);
}

void EngineCore::commit(const Step& step, TimeUs ended) {
  const std::vector<PlanRow>& rows = step.plan.rows;
  result_.reset(step.plan.step);
  // Without the time that it waited for the step before.
  result_.elapsed_us = ended - std::max(step.started, std::exchange(last_finish_, ended));
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowOutput& output = step.outputs[i];
    if (!output.status.ok()) {
      result_.add(RowOutcome::kFault);
      ++counters_.faults;
      log_error("request {} failed: {}", rows[i].request.value, output.status.message());
      continue;
    }
    RowOutcome outcome = RowOutcome::kOk;
    sampled_.clear();
    for (const SampledToken& sampled : output.sampled) {
      if (sampled.last) outcome = RowOutcome::kLast;
      if (sampled.stop) outcome = RowOutcome::kStop;
      if (!sampled.stop) sampled_.push_back(sampled.token);
    }
    result_.add(outcome, sampled_, output.drafts);
  }
  scheduler_->commit(result_, ended, effects_);
  counters_.last_step_us = result_.elapsed_us;
  counters_.last_step_rows = static_cast<uint32_t>(rows.size());
  counters_.last_step_tokens = step.plan.tokens;
  counters_.step_us.add(static_cast<uint64_t>(result_.elapsed_us));
  counters_.step_rows.add(rows.size());
  counters_.step_tokens.add(step.plan.tokens);
}

// Tokens and ends to the streams. Both come in the order of the plan's rows.
void EngineCore::deliver(Step& step, TimeUs now) {
  report_progress(step);
  const std::vector<PlanRow>& rows = step.plan.rows;
  size_t row = 0;
  size_t sample = 0;
  for (const TokenEvent& event : effects_.tokens) {
    for (; rows[row].request != event.request; ++row) sample = 0;
    deliver_token(*step.live[row], event, step.outputs[row].sampled[sample++], now);
  }
  row = 0;
  for (const EndEvent& event : effects_.ended) {
    while (rows[row].request != event.request) ++row;
    step.live[row]->end.hidden = std::move(step.outputs[row].hidden);
    finish(event.request, event.reason, now, step.outputs[row].status);
  }
}

void EngineCore::deliver_token(Live& live, const TokenEvent& event, const SampledToken& sampled,
                               TimeUs now) {
  if (live.ended()) return;  // with the token before
  if (live.first_token == kNever) {
    live.first_token = now;
    live.request.prompt = {};
  }
  live.sampler.accept(event.token);
  live.last_token = event.token;
  ++live.end.generated_tokens;
  TokenLogprob logprobs[1 + kMaxTopLogprobs];
  const size_t count = live.sampler.params().logprobs ? sampled.write_logprobs(logprobs) : 0;
  if (live.stream->push(event.token, {logprobs, count}, now, now - options_.stall_timeout_us)) {
    return;
  }
  ++counters_.stalled_readers;
  // It may have ended in this very step; then its own end counts.
  if (scheduler_->cancel(event.request, FinishReason::kClient)) {
    finish(event.request, FinishReason::kClient, now,
           resource_exhausted("nobody reads the answer"));
  }
}

// The way to a request's first token. What its rows did not have to compute was cached.
void EngineCore::report_progress(const Step& step) {
  for (size_t i = 0; i < step.live.size(); ++i) {
    const PlanRow& row = step.plan.rows[i];
    Live& live = *step.live[i];
    if (live.ended() || live.first_token != kNever) continue;
    live.computed_tokens += row.count;
    live.end.cached_tokens =
        live.end.prompt_tokens - std::min(live.end.prompt_tokens, live.computed_tokens);
    if (live.request.reports_progress) live.stream->progress(row.start + row.count);
  }
}

void EngineCore::finish(RequestId id, FinishReason reason, TimeUs now, Status status) {
  const auto it = live_.find(id);
  SKEIN_CHECK(it != live_.end(), "request {} ended but is not live", id.value);
  Live& live = *it->second;
  GenerationEnd& end = live.end;
  end.reason = reason;
  end.status = std::move(status);
  if (live.started == kNever) {
    end.queue_us = now - live.arrived;
    leave(live.request.tenant);
  } else if (live.first_token == kNever) {
    end.prefill_us = now - live.started;
  } else {
    end.prefill_us = live.first_token - live.started;
    end.decode_us = now - live.first_token;
  }
  if (live.started != kNever) {
    const std::lock_guard lock(door_mutex_);
    door_.note_end(now);
  }
  ++counters_.finished[static_cast<size_t>(reason)];
  ended_.emplace_back(std::move(live.stream), std::move(end));
  unwatch(id);
  live_.erase(it);
  live_count_.fetch_sub(1);
}

// The snapshot first: whoever has seen an end finds it counted.
void EngineCore::publish() {
  counters_.scheduler = scheduler_->stats();
  hung_ = false;
  if (const uint32_t open = scheduler_->open_slots(); open != open_slots_) {
    open_slots_ = open;
    const std::lock_guard lock(door_mutex_);
    door_.set_open(open);
  }
  {
    const std::lock_guard lock(snapshot_mutex_);
    snapshot_ = counters_;
  }
  for (auto& [stream, end] : ended_) stream->end(std::move(end));
  ended_.clear();
}

}  // namespace skein
