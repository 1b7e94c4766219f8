#include "engine/manager/direct_service.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

namespace skein {
namespace {

// Ids of its own start here, so that they never meet those of requests it takes over.
constexpr uint64_t kFirstId = uint64_t{1} << 62;

}  // namespace

InferenceService::Owned<DirectService> DirectService::create(
    std::unique_ptr<DirectInference> inference, const ServiceOptions& options, const Clock& clock,
    std::function<void()> on_lost) {
  return start(std::shared_ptr<DirectService>(
                   new DirectService(std::move(inference), options, clock, std::move(on_lost))),
               "direct");
}

DirectService::DirectService(std::unique_ptr<DirectInference> inference,
                             const ServiceOptions& options, const Clock& clock,
                             std::function<void()> on_lost)
    : InferenceService(options, 1, kFirstId, clock),
      on_lost_(std::move(on_lost)),
      inference_(std::move(inference)) {}

bool DirectService::pause(TimeUs timeout_us) {
  std::unique_lock lock(mutex_);
  const bool idle = changed_.wait_for(lock, std::chrono::microseconds(timeout_us),
                                      [this] { return running_ == nullptr; });
  if (idle) inference_.reset();
  return idle;
}

void DirectService::resume(std::unique_ptr<DirectInference> inference) {
  const std::lock_guard lock(mutex_);
  inference_ = std::move(inference);
  changed_.notify_all();
}

void DirectService::end_waiting(const Status& why) {
  const std::lock_guard lock(mutex_);
  for (const Waiting& waiting : waiting_) end_one(waiting, FinishReason::kError, why);
  waiting_.clear();
}

Status DirectService::accept(Submission submission) try {
  const std::lock_guard lock(mutex_);
  if (stopping()) return unavailable("the engine has stopped");
  add(std::move(submission), true);
  return {};
} catch (const std::bad_alloc&) {
  return {Code::kResourceExhausted, "out of memory"};
}

std::shared_ptr<RequestCanceller> DirectService::take_over(std::vector<Submission> requests) {
  for (Submission& request : requests) {
    request.arrived = clock_.now();
    watch_.add(request.id, request.stream, request.deadline);
    live_count_.fetch_add(1);
    const std::lock_guard lock(mutex_);
    add(std::move(request), false);
  }
  return shared_from_this();
}

void DirectService::add(Submission submission, bool at_door) {
  const TimeUs key = submission.arrived + static_cast<TimeUs>(submission.request.priority) *
                                              options_.scheduler.us_per_class;
  waiting_.push_back({std::move(submission), key, at_door});
  ++counters_.scheduler.submitted;
  changed_.notify_all();
}

DirectService::WaitingList::iterator DirectService::find(RequestId id) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [&](const Waiting& waiting) { return waiting.id == id; });
}

void DirectService::cancel(RequestId id, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  if (running_ != nullptr && running_->id == id) {
    stop_reason_ = reason;
    stop_flag_ = true;
  } else if (const auto it = find(id); it != waiting_.end()) {
    end_one(*it, reason);
    waiting_.erase(it);
  }
}

void DirectService::explain(std::vector<RequestId> ids, Explained done) {
  std::vector<Explanation> explanations;
  {
    const std::lock_guard lock(mutex_);
    for (const RequestId id : ids) {
      if (const auto explanation = explain_one(id)) explanations.push_back(*explanation);
    }
  }
  done(std::move(explanations));
}

// It has no blocks to show.
void DirectService::view(Viewed done) {
  const auto view = std::make_shared<SchedulerView>();
  {
    const std::lock_guard lock(mutex_);
    const auto add = [&](RequestId id) {
      if (view->requests.size() >= SchedulerView::kMaxRequests) return;
      if (const auto explanation = explain_one(id)) view->requests.push_back(*explanation);
    };
    if (running_ != nullptr) add(running_->id);
    for (const Waiting& waiting : waiting_) add(waiting.id);
  }
  done(std::shared_ptr<const SchedulerView>(view));
}

std::optional<Explanation> DirectService::explain_one(RequestId id) {
  Explanation e;
  e.id = id;
  if (running_ != nullptr && running_->id == id) {
    e.status = RequestStatus::RUNNING;
    return e;
  }
  const auto it = find(id);
  if (it == waiting_.end()) return std::nullopt;
  e.priority = it->request.priority;
  e.waited_us = clock_.now() - it->arrived;
  e.prompt_tokens = static_cast<uint32_t>(it->request.prompt.size());
  e.queue_position = 1 + static_cast<uint32_t>(std::count_if(
                             waiting_.begin(), waiting_.end(),
                             [&](const Waiting& other) { return before(other, *it); }));
  e.wait = e.queue_position > 1 ? WaitReason::kBehindOthers : WaitReason::kBatchFull;
  return e;
}

EngineSnapshot DirectService::snapshot() const {
  const EngineSnapshot door = InferenceService::snapshot();
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = counters_;
  snapshot.state = door.state;
  for (const Waiting& waiting : waiting_) {
    const auto p = static_cast<size_t>(waiting.request.priority);
    ++snapshot.scheduler.waiting[p];
    snapshot.scheduler.oldest_arrival[p] =
        std::min(snapshot.scheduler.oldest_arrival[p], waiting.arrived);
  }
  snapshot.scheduler.running = running_ != nullptr ? 1 : 0;
  snapshot.live = static_cast<uint32_t>(waiting_.size()) + snapshot.scheduler.running;
  return snapshot;
}

void DirectService::wake() {
  const std::lock_guard lock(mutex_);
  stop_running(FinishReason::kDrained);
  changed_.notify_all();
}

void DirectService::stop_running(FinishReason reason) {
  if (!stop_reason_) stop_reason_ = reason;
  stop_flag_ = true;
}

void DirectService::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this] { return stopping() || (inference_ != nullptr && !waiting_.empty()); });
    if (stopping()) break;
    const auto best = std::min_element(waiting_.begin(), waiting_.end(), before);
    Waiting next = std::move(*best);
    waiting_.erase(best);
    if (clock_.now() >= next.deadline) {
      end_one(next, FinishReason::kTimedOut);
      continue;
    }
    if (std::exchange(next.at_door, false)) leave_queue(next.request.tenant);
    set_open_slots(0);
    running_ = &next;
    stop_reason_.reset();
    stop_flag_ = false;
    lock.unlock();
    const bool served = serve_one(next);
    lock.lock();
    running_ = nullptr;
    changed_.notify_all();
    set_open_slots(1);
    watch_.set_recovered();
    if (served) {
      note_end(clock_.now());
    } else {
      waiting_.push_back(std::move(next));
    }
  }
  for (const Waiting& waiting : waiting_) end_one(waiting, FinishReason::kDrained);
  waiting_.clear();
  set_state(EngineState::kStopped);
}

// The one that runs looks at its deadline itself, token by token, unless a pass keeps it. Those
// that wait are looked at here alone.
void DirectService::watch() {
  const std::lock_guard lock(mutex_);
  watch_.set_step_start(inference_ != nullptr ? inference_->step_started() : kNever);
  InferenceService::watch();
  const TimeUs now = clock_.now();
  const auto reason_for = [&](const Submission& request) {
    return request.deadline <= now ? FinishReason::kTimedOut : FinishReason::kError;
  };
  if (running_ != nullptr && running_->stream->ended()) stop_running(reason_for(*running_));
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const bool over = waiting.deadline <= now || waiting.stream->ended();
    if (over) end_one(waiting, reason_for(waiting));
    return over;
  });
}

void DirectService::end_one(const Waiting& waiting, FinishReason reason, Status status) {
  if (waiting.at_door) leave_queue(waiting.request.tenant);
  GenerationEnd end;
  end.reason = reason;
  end.status = std::move(status);
  end.queue_us = clock_.now() - waiting.arrived;
  finish(waiting, std::move(end));
}

void DirectService::finish(const Waiting& request, GenerationEnd end) {
  end.prompt_tokens = static_cast<uint32_t>(request.request.prompt.size());
  ++counters_.finished[static_cast<size_t>(end.reason)];
  forget(request.id);
  request.stream->end(std::move(end));
}

// The inference only knows that it was told to end.
Result<DirectOutcome> DirectService::generate(const Waiting& waiting, Course& course) {
  const GenerationRequest& request = waiting.request;
  bool is_first = true;
  const auto on_token = [&](const SampledToken& token) {
    const TimeUs now = clock_.now();
    if (std::exchange(is_first, false)) waiting.stream->set_cached(inference_->cached_tokens());
    TokenLogprob logprobs[1 + kMaxTopLogprobs];
    const size_t count = request.sampling.logprobs ? token.write_logprobs(logprobs) : 0;
    const bool told =
        waiting.stream->push(token.token, {logprobs, count}, now, now - options_.stall_timeout_us);
    const std::lock_guard lock(mutex_);
    course.has_sent = true;
    if (!told) {
      course.cut = FinishReason::kClient;
      course.why = resource_exhausted("nobody reads the answer");
      ++counters_.stalled_readers;
    } else if (now >= waiting.deadline) {
      course.cut = FinishReason::kTimedOut;
    }
    ++counters_.scheduler.generated_tokens;
    return !course.cut;
  };
  // Whatever goes wrong in one request, the others are served.
  try {
    return inference_->generate(
        {request.prompt, request.sampling, request.max_tokens, request.salt, request.form,
         request.thought_budget, request.pooling, request.second_from,
         options_.speculation_for(request) != Speculation::kOff, request.tenant},
        on_token, &stop_flag_);
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory");
  } catch (const BackendLost& error) {
    course.is_lost = true;
    return internal_error("{}", error.what());
  } catch (const std::exception& error) {
    return internal_error("{}", error.what());
  }
}

bool DirectService::serve_one(const Waiting& request) {
  const TimeUs started = clock_.now();
  Course course;
  GenerationEnd end;
  Result<DirectOutcome> outcome = generate(request, course);
  if (course.is_lost && on_lost_) on_lost_();
  end.status = std::move(course.why);
  end.queue_us = started - request.arrived;
  const std::lock_guard lock(mutex_);
  if (course.is_lost) {
    inference_.reset();
    if (!course.has_sent && on_lost_ && !stop_flag_) return false;
  }
  if (outcome.ok()) {
    end.reason = outcome->reason;
    end.cached_tokens = outcome->cached_tokens;
    end.generated_tokens = outcome->generated_tokens;
    counters_.scheduler.drafted_tokens += outcome->drafted_tokens;
    counters_.scheduler.accepted_tokens += outcome->accepted_tokens;
    end.prefill_us = outcome->prefill_us;
    end.decode_us = outcome->decode_us;
    end.hidden = std::move(outcome->hidden);
    if (end.reason == FinishReason::kClient) end.reason = stop_reason_.value_or(end.reason);
    if (course.cut) end.reason = *course.cut;
  } else {
    end.reason =
        course.is_lost ? stop_reason_.value_or(FinishReason::kError) : FinishReason::kError;
    end.status = outcome.status();
    ++counters_.faults;
  }
  counters_.scheduler.prompt_tokens += request.request.prompt.size();
  finish(request, std::move(end));
  return true;
}

}  // namespace skein
