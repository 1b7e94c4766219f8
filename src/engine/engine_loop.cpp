// The loop: plan, run, commit, deliver.
#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "engine/engine_core.h"

namespace skein {
namespace {

// When live requests exist the scheduler always plans something; if it ever does not, look again
// soon instead of sleeping for ever.
constexpr TimeUs kIdlePatienceUs = 10 * kUsPerMs;

}  // namespace

void EngineCore::run() {
  try {
    while (!stopping_) {
      mailbox_.drain(messages_);
      for (Message& message : messages_) {
        std::visit([&](auto& m) { apply(m, clock_.now()); }, message);
      }
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
    fail(internal_error("the engine cannot go on: {}", error.what()));
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
  } catch (const std::bad_alloc&) {
    status = {Code::kResourceExhausted, "out of memory"};
  }
  if (status.ok()) return;
  waiting_.fetch_sub(1);
  live_.erase(id);
  end_unstarted(stream, FinishReason::kError, std::move(status));
}

// The end of a request that the scheduler never had.
void EngineCore::end_unstarted(const std::shared_ptr<TokenStream>& stream, FinishReason reason,
                               Status status) {
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

void EngineCore::apply(Explain& message, TimeUs now) {
  message.answer.set_value(scheduler_->explain(message.id, now));
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
    waiting_.fetch_sub(1);
  }
}

void EngineCore::run_step() {
  tasks_.clear();
  for (const PlanRow& row : plan_.rows) {
    const Live& live = live_.at(row.request);
    tasks_.push_back(row.samples
                         ? RowTask{&live.sampler, row.start + row.count - live.end.prompt_tokens}
                         : RowTask{});
  }
  const TimeUs started = clock_.now();
  begin_step(started);
  run_rows();
  const TimeUs ended = clock_.now();
  const bool given_up = end_step();
  commit(started, ended);
  deliver(ended);
  if (given_up) {
    for (const PlanRow& row : plan_.rows) {
      if (scheduler_->cancel(row.request, FinishReason::kTimedOut)) {
        finish(row.request, FinishReason::kTimedOut, ended);
      }
    }
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
  step_streams_.clear();
  for (const PlanRow& row : plan_.rows) step_streams_.push_back(live_.at(row.request).stream);
}

bool EngineCore::end_step() {
  const std::lock_guard lock(step_mutex_);
  step_started_ = kNever;
  step_streams_.clear();
  return step_given_up_;
}

void EngineCore::commit(TimeUs started, TimeUs ended) {
  result_.step = plan_.step;
  result_.elapsed_us = ended - started;
  result_.rows.clear();
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    const RowOutput& output = outputs_[i];
    RowResult row;
    if (!output.status.ok()) {
      row.outcome = RowOutcome::kFault;
      ++counters_.faults;
      log_error("request {} failed: {}", plan_.rows[i].request.value, output.status.message());
    } else if (plan_.rows[i].samples) {
      row.outcome = output.sampled.stop ? RowOutcome::kStop : RowOutcome::kOk;
      row.token = output.sampled.token;
    }
    result_.rows.push_back(row);
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
    waiting_.fetch_sub(1);
  } else if (live.first_token == kNever) {
    end.prefill_us = now - live.started;
  } else {
    end.prefill_us = live.first_token - live.started;
    end.decode_us = now - live.first_token;
  }
  ++counters_.finished[static_cast<size_t>(reason)];
  ended_.emplace_back(std::move(live.stream), std::move(end));
  live_.erase(it);
  live_count_.fetch_sub(1);
}

// The snapshot first: whoever has seen an end finds it counted.
void EngineCore::publish() {
  counters_.scheduler = scheduler_->stats();
  hung_ = false;
  {
    const std::lock_guard lock(snapshot_mutex_);
    snapshot_ = counters_;
  }
  for (auto& [stream, end] : ended_) stream->end(std::move(end));
  ended_.clear();
}

// The orderly end: nobody is left without one.
void EngineCore::shut() {
  mailbox_.close();
  mailbox_.drain(messages_);
  const TimeUs now = clock_.now();
  for (Message& message : messages_) {
    if (const Submit* submit = std::get_if<Submit>(&message)) {
      end_unstarted(submit->stream, FinishReason::kDrained, {});
    } else {
      std::visit([&](auto& m) { apply(m, now); }, message);
    }
  }
  std::vector<EndEvent> ended;
  scheduler_->cancel_all(FinishReason::kDrained, ended);
  for (const EndEvent& event : ended) finish(event.request, event.reason, now);
  counters_.state = EngineState::kStopped;
  publish();
}

// The runner is lost. What has sent nothing can go elsewhere; the rest ends here.
void EngineCore::fail(const Status& why) {
  log_error("{}", why.message());
  (void)end_step();
  const TimeUs now = clock_.now();
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  std::vector<Orphan> orphans;
  for (const RequestId id : ids) {
    Live& live = live_.at(id);
    if (live.first_token != kNever || !options_.adopt || live.stream->ended()) {
      finish(id, FinishReason::kError, now, why);
      continue;
    }
    live.request.sampling = live.sampler.params();
    if (live.deadline != kNever) live.request.timeout_us = live.deadline - now;
    orphans.push_back({id, std::move(live.request), std::move(live.stream)});
  }
  live_.clear();
  counters_.state = EngineState::kFailed;
  publish();
  // From here on nobody can submit. What came between the last step and now is orphaned too.
  mailbox_.close();
  mailbox_.drain(messages_);
  for (Message& message : messages_) {
    if (Submit* submit = std::get_if<Submit>(&message)) {
      orphans.push_back({submit->id, std::move(submit->request), std::move(submit->stream)});
    } else if (Explain* explain = std::get_if<Explain>(&message)) {
      explain->answer.set_value(unavailable("the engine has failed"));
    }
  }
  if (options_.adopt) {
    live_count_.fetch_sub(static_cast<uint32_t>(orphans.size()));
    std::shared_ptr<RequestCanceller> successor = options_.adopt(std::move(orphans), why);
    const std::lock_guard lock(snapshot_mutex_);
    successor_ = std::move(successor);
  } else {
    for (const Orphan& orphan : orphans) end_unstarted(orphan.stream, FinishReason::kError, why);
    publish();
  }
}

}  // namespace skein
