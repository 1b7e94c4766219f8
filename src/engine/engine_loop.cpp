// The loop: plan, run, commit, deliver.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "engine/engine_core.h"

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
      scheduler_->plan(now, plan_);
      note_plan(now);
      if (plan_.empty()) {
        publish();
        mailbox_.wait(scheduler_->idle() ? kNever : kIdlePatienceUs);
        continue;
      }
      run_step();
      counters_.loop_time_us += static_cast<uint64_t>(clock_.now() - now);
      publish();
    }
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
      sampler(std::move(submit.request.sampling), vocab, submit.request.prompt),
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
    const TimeUs timeout_us = message.request.timeout_us;
    if (timeout_us < kNever - message.arrived) spec.deadline = message.arrived + timeout_us;
    Live live(std::move(message), options_.scheduler.vocab_size);
    live.deadline = spec.deadline;
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
void EngineCore::note_plan(TimeUs now) {
  for (const EndEvent& ended : plan_.ended) finish(ended.request, ended.reason, now);
  for (const RequestId id : plan_.preempted) ++live_.at(id).end.preemptions;
  for (const RequestId id : plan_.admitted) {
    Live& live = live_.at(id);
    if (live.started != kNever) continue;
    live.started = now;
    live.end.queue_us = now - live.arrived;
    const Result<Explanation> explained = scheduler_->explain(id, now);
    if (explained.ok()) live.end.start_priority_milli = explained->effective_priority_milli;
    leave(live.request.tenant);
  }
}

void EngineCore::run_step() {
  tasks_.clear();
  for (const PlanRow& row : plan_.rows) {
    const Live& live = live_.at(row.request);
    tasks_.push_back(row.samples ? RowTask{&live.sampler, row.start + row.count} : RowTask{});
  }
  const TimeUs started = clock_.now();
  begin_step(started);
  run_rows();
  const TimeUs ended = clock_.now();
  const bool given_up = end_step();
  commit(started, ended);
  deliver(ended);
  if (given_up) drop_given_up(ended);
}

// The watchdog has ended them; what the step brought for them is not delivered.
void EngineCore::drop_given_up(TimeUs now) {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) {
    if (live.stream->ended()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) {
    if (scheduler_->cancel(id, FinishReason::kError)) finish(id, FinishReason::kError, now);
  }
}

// All rows at once; if that throws, each alone.
void EngineCore::run_rows() {
  const std::span<const PlanRow> rows(plan_.rows);
  const std::span<const RowTask> tasks(tasks_);
  const std::span<RowOutput> outputs(outputs_.data(), rows.size());
  for (RowOutput& output : outputs) output.status = {};
  try {
    counters_.model_time_us += static_cast<uint64_t>(runner_->run(rows, tasks, outputs));
    return;
  } catch (const RunnerLost&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("step {} failed and is run again row by row: {}", plan_.step, error.what());
    ++counters_.reruns;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    outputs[i].status = {};
    try {
      counters_.model_time_us += static_cast<uint64_t>(
          runner_->run(rows.subspan(i, 1), tasks.subspan(i, 1), outputs.subspan(i, 1)));
    } catch (const RunnerLost&) {
      throw;
    } catch (const std::exception& error) {
      outputs[i].status = internal_error("{}", error.what());
    }
  }
}

void EngineCore::begin_step(TimeUs now) {
  const std::lock_guard lock(step_mutex_);
  step_started_ = now;
  step_given_up_ = false;
}

bool EngineCore::end_step() {
  const std::lock_guard lock(step_mutex_);
  step_started_ = kNever;
  return step_given_up_;
}

void EngineCore::commit(TimeUs started, TimeUs ended) {
  result_.reset(plan_.step);
  result_.elapsed_us = ended - started;
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    const RowOutput& output = outputs_[i];
    if (!output.status.ok()) {
      result_.add(RowOutcome::kFault);
      ++counters_.faults;
      log_error("request {} failed: {}", plan_.rows[i].request.value, output.status.message());
    } else if (plan_.rows[i].samples > 0 && output.sampled.stop) {
      result_.add(RowOutcome::kStop);
    } else {
      result_.add(RowOutcome::kOk, std::span(&output.sampled.token, plan_.rows[i].samples));
    }
  }
  scheduler_->commit(result_, ended, effects_);
  counters_.last_step_us = result_.elapsed_us;
  counters_.last_step_rows = static_cast<uint32_t>(plan_.rows.size());
  counters_.last_step_tokens = plan_.tokens;
  counters_.step_us.add(static_cast<uint64_t>(result_.elapsed_us));
  counters_.step_rows.add(plan_.rows.size());
  counters_.step_tokens.add(plan_.tokens);
}

// Tokens and ends to the streams. Both come in the order of the plan's rows.
void EngineCore::deliver(TimeUs now) {
  report_progress();
  size_t row = 0;
  for (const TokenEvent& event : effects_.tokens) {
    while (plan_.rows[row].request != event.request) ++row;
    Live& live = live_.at(event.request);
    if (live.first_token == kNever) {
      live.first_token = now;
      live.request.prompt = {};
    }
    live.sampler.accept(event.token);
    ++live.end.generated_tokens;
    const SampledToken& sampled = outputs_[row].sampled;
    TokenLogprob logprobs[1 + kMaxTopLogprobs];
    const size_t count = live.sampler.params().logprobs ? sampled.write_logprobs(logprobs) : 0;
    if (!live.stream->push(event.token, {logprobs, count}, now, now - options_.stall_timeout_us)) {
      ++counters_.stalled_readers;
      // It may have ended in this very step; then its own end counts.
      if (scheduler_->cancel(event.request, FinishReason::kClient)) {
        finish(event.request, FinishReason::kClient, now,
               resource_exhausted("nobody reads the answer"));
      }
    }
  }
  row = 0;
  for (const EndEvent& event : effects_.ended) {
    while (plan_.rows[row].request != event.request) ++row;
    finish(event.request, event.reason, now, outputs_[row].status);
  }
}

// The way to a request's first token. What its rows did not have to compute was cached.
void EngineCore::report_progress() {
  for (const PlanRow& row : plan_.rows) {
    const auto it = live_.find(row.request);
    if (it == live_.end() || it->second.first_token != kNever) continue;
    Live& live = it->second;
    live.computed_tokens += row.count;
    live.end.cached_tokens =
        live.end.prompt_tokens - std::min(live.end.prompt_tokens, live.computed_tokens);
    if (live.request.reports_progress) live.stream->progress(row.start + row.count);
  }
}

void EngineCore::finish(RequestId id, FinishReason reason, TimeUs now, Status status) {
  const auto it = live_.find(id);
  SKEIN_CHECK(it != live_.end(), "request {} ended but is not live", id.value);
  Live& live = it->second;
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
