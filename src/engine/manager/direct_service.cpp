#include "engine/manager/direct_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <pthread.h>
#include <utility>
#include <vector>

#include "base/log.h"

namespace skein {
namespace {

// Ids of its own start here, so that they never meet those of requests it adopts.
constexpr uint64_t kFirstId = uint64_t{1} << 62;

}  // namespace

class DirectService::Core final : public RequestCanceller,
                                  public std::enable_shared_from_this<Core> {
 public:
  Core(std::unique_ptr<DirectInference> inference, Options options, const Clock& clock)
      : inference_(std::move(inference)),
        options_(options),
        clock_(clock),
        door_({options_.scheduler.max_queue, 1, options_.scheduler.us_per_class}) {}

  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready);
  std::optional<TimeUs> share_retry_us(uint64_t tenant, uint32_t requests);
  void add(Orphan request);
  void cancel(RequestId id, FinishReason reason) override;
  std::vector<Explanation> explain(const std::vector<RequestId>& ids) const;
  EngineSnapshot snapshot() const;
  void drain();
  void request_stop();
  bool wait_stopped(TimeUs timeout_us);
  TimeUs step_timeout_us() const { return options_.step_timeout_us; }
  void watch();
  void run();

 private:
  struct Waiting {
    Orphan request;
    TimeUs arrived = 0;
    TimeUs deadline = kNever;
    TimeUs key = 0;        // as the scheduler's: arrival + class x time per class
    bool at_door = false;  // it holds a place there; adopted ones do not
  };

  void add_locked(Orphan request);
  std::optional<Explanation> explain_one(RequestId id) const;
  void watch_running(TimeUs now);
  void serve(Waiting& waiting);
  Result<DirectOutcome> generate(Waiting& waiting, std::optional<FinishReason>& cut, Status& why);
  void end_waiting(const Waiting& waiting, FinishReason reason, Status status = {});
  Status hang_status() const;
  static bool before(const Waiting& a, const Waiting& b) {
    return a.key != b.key ? a.key < b.key : a.request.id < b.request.id;
  }

  std::unique_ptr<DirectInference> inference_;
  const Options options_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;  // not in order: there are few, and the best is looked for
  QueueDoor door_;
  uint64_t next_id_ = kFirstId;
  RequestId running_{0};
  std::shared_ptr<TokenStream> running_stream_;
  TimeUs running_deadline_ = kNever;
  std::optional<FinishReason> stop_running_;  // why the one that runs should end
  std::atomic<bool> stop_flag_{false};        // that it should
  EngineSnapshot snapshot_;
  bool draining_ = false;
  bool hung_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
};

Result<RequestHandle> DirectService::Core::submit(GenerationRequest request,
                                                  std::function<void()> on_ready) {
  SKEIN_TRY(check_request(request, options_.scheduler));
  const std::lock_guard lock(mutex_);
  if (draining_ || stopping_) return unavailable("the engine is draining");
  if (hung_) return unavailable("the engine is hung");
  const RequestId id(next_id_++);
  auto stream = std::make_shared<TokenStream>(std::move(on_ready));
  waiting_.reserve(waiting_.size() + 1);  // what can fail goes before the door
  SKEIN_TRY(enter_queue(door_, request, clock_.now()));
  add_locked({id, std::move(request), stream});
  waiting_.back().at_door = true;
  return RequestHandle(id, std::move(stream), shared_from_this());
}

std::optional<TimeUs> DirectService::Core::share_retry_us(uint64_t tenant, uint32_t requests) {
  const std::lock_guard lock(mutex_);
  return door_.share_retry_us(tenant, requests, clock_.now());
}

void DirectService::Core::add(Orphan request) {
  const std::lock_guard lock(mutex_);
  add_locked(std::move(request));
}

void DirectService::Core::add_locked(Orphan request) {
  Waiting waiting;
  waiting.arrived = clock_.now();
  if (request.request.timeout_us < kNever - waiting.arrived) {
    waiting.deadline = waiting.arrived + request.request.timeout_us;
  }
  waiting.key = waiting.arrived +
                static_cast<TimeUs>(request.request.priority) * options_.scheduler.us_per_class;
  waiting.request = std::move(request);
  ++snapshot_.scheduler.submitted;
  waiting_.push_back(std::move(waiting));
  changed_.notify_all();
}

void DirectService::Core::cancel(RequestId id, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  if (running_ == id) {
    stop_running_ = reason;
    stop_flag_ = true;
    return;
  }
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& w) { return w.request.id == id; });
  if (it == waiting_.end()) return;
  end_waiting(*it, reason);
  waiting_.erase(it);
}

std::vector<Explanation> DirectService::Core::explain(const std::vector<RequestId>& ids) const {
  std::vector<Explanation> explanations;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) {
    if (const auto explanation = explain_one(id)) explanations.push_back(*explanation);
  }
  return explanations;
}

std::optional<Explanation> DirectService::Core::explain_one(RequestId id) const {
  Explanation e;
  e.id = id;
  if (running_ == id) {
    e.status = RequestStatus::RUNNING;
    return e;
  }
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& w) { return w.request.id == id; });
  if (it == waiting_.end()) return std::nullopt;
  e.priority = it->request.request.priority;
  e.waited_us = clock_.now() - it->arrived;
  e.prompt_tokens = static_cast<uint32_t>(it->request.request.prompt.size());
  e.queue_position = 1 + static_cast<uint32_t>(std::count_if(
                             waiting_.begin(), waiting_.end(),
                             [&](const Waiting& other) { return before(other, *it); }));
  e.wait = e.queue_position > 1 ? WaitReason::kBehindOthers : WaitReason::kBatchFull;
  return e;
}

EngineSnapshot DirectService::Core::snapshot() const {
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = snapshot_;
  for (const Waiting& waiting : waiting_) {
    const auto p = static_cast<size_t>(waiting.request.request.priority);
    ++snapshot.scheduler.waiting[p];
    snapshot.scheduler.oldest_arrival[p] =
        std::min(snapshot.scheduler.oldest_arrival[p], waiting.arrived);
  }
  snapshot.scheduler.running = running_.value != 0 ? 1 : 0;
  snapshot.live = static_cast<uint32_t>(waiting_.size()) + snapshot.scheduler.running;
  if (stopped_) {
    snapshot.state = EngineState::kStopped;
  } else if (hung_) {
    snapshot.state = EngineState::kHung;
  } else if (draining_) {
    snapshot.state = EngineState::kDraining;
  }
  return snapshot;
}

void DirectService::Core::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void DirectService::Core::request_stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (!stop_running_) stop_running_ = FinishReason::kDrained;
  stop_flag_ = true;
  changed_.notify_all();
}

bool DirectService::Core::wait_stopped(TimeUs timeout_us) {
  std::unique_lock lock(mutex_);
  const auto stopped = [this] { return stopped_; };
  if (timeout_us == kNever) {
    changed_.wait(lock, stopped);
    return true;
  }
  return changed_.wait_for(lock, std::chrono::microseconds(timeout_us), stopped);
}

void DirectService::Core::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) break;
    const auto best = std::min_element(waiting_.begin(), waiting_.end(), before);
    Waiting next = std::move(*best);
    waiting_.erase(best);
    if (clock_.now() >= next.deadline) {
      end_waiting(next, FinishReason::kTimedOut);
      continue;
    }
    if (next.at_door) door_.leave(next.request.request.tenant);
    door_.set_open(0);
    running_ = next.request.id;
    running_stream_ = next.request.stream;
    running_deadline_ = next.deadline;
    stop_running_.reset();
    stop_flag_ = false;
    lock.unlock();
    serve(next);
    lock.lock();
    running_ = RequestId(0);
    door_.note_end(clock_.now());
    door_.set_open(1);
    running_stream_ = nullptr;
    hung_ = false;
  }
  for (const Waiting& waiting : waiting_) end_waiting(waiting, FinishReason::kDrained);
  waiting_.clear();
  stopped_ = true;
  changed_.notify_all();
}

Status DirectService::Core::hang_status() const {
  return deadline_exceeded("a step has not come back within the step timeout of {} ms",
                           options_.step_timeout_us / kUsPerMs);
}

void DirectService::Core::watch() {
  const TimeUs now = clock_.now();
  const std::lock_guard lock(mutex_);
  watch_running(now);
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.deadline <= now) {
      end_waiting(waiting, FinishReason::kTimedOut);
    } else if (hung_) {
      end_waiting(waiting, FinishReason::kError, hang_status());
    } else {
      return false;
    }
    return true;
  });
}

// The one that runs looks at its deadline itself, token by token, unless a pass keeps it.
void DirectService::Core::watch_running(TimeUs now) {
  const TimeUs started = inference_->step_started();
  const TimeUs patience_us = std::min(kSlowStepUs, options_.step_timeout_us);
  if (running_.value == 0 || started == kNever || now - started < patience_us) return;
  if (now - started >= options_.step_timeout_us && !std::exchange(hung_, true)) {
    log_error("a step has not come back in {} ms; {} requests that run or wait end",
              (now - started) / kUsPerMs, waiting_.size() + 1);
  }
  const bool own_deadline = running_deadline_ <= now;
  if (!own_deadline && !hung_) return;
  GenerationEnd end;
  end.reason = own_deadline ? FinishReason::kTimedOut : FinishReason::kError;
  if (!own_deadline) end.status = hang_status();
  if (!stop_running_) stop_running_ = end.reason;
  stop_flag_ = true;
  running_stream_->end(std::move(end));
}

void DirectService::Core::end_waiting(const Waiting& waiting, FinishReason reason, Status status) {
  GenerationEnd end;
  end.reason = reason;
  end.status = std::move(status);
  end.prompt_tokens = static_cast<uint32_t>(waiting.request.request.prompt.size());
  end.queue_us = clock_.now() - waiting.arrived;
  if (waiting.at_door) door_.leave(waiting.request.request.tenant);
  ++snapshot_.finished[static_cast<size_t>(reason)];
  waiting.request.stream->end(std::move(end));
}

// `cut`: why it was ended by us; the inference only knows that it was told to end.
Result<DirectOutcome> DirectService::Core::generate(Waiting& waiting,
                                                    std::optional<FinishReason>& cut, Status& why) {
  const GenerationRequest& request = waiting.request.request;
  const auto on_token = [&](const SampledToken& token) {
    const TimeUs now = clock_.now();
    TokenLogprob logprobs[1 + kMaxTopLogprobs];
    const size_t count = request.sampling.logprobs ? token.write_logprobs(logprobs) : 0;
    if (!waiting.request.stream->push(token.token, {logprobs, count}, now,
                                      now - options_.stall_timeout_us)) {
      cut = FinishReason::kClient;
      why = resource_exhausted("nobody reads the answer");
      const std::lock_guard lock(mutex_);
      ++snapshot_.stalled_readers;
    } else if (now >= waiting.deadline) {
      cut = FinishReason::kTimedOut;
    }
    const std::lock_guard lock(mutex_);
    ++snapshot_.scheduler.generated_tokens;
    return !cut;
  };
  if (request.wants_hidden) return unimplemented("there is no hidden state without batching");
  // Whatever goes wrong in one request, the others are served.
  try {
    return inference_->generate(
        {request.prompt, request.sampling, request.max_tokens, request.salt, request.constraint},
        on_token, &stop_flag_);
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return internal_error("{}", error.what());
  }
}

void DirectService::Core::serve(Waiting& waiting) {
  const TimeUs started = clock_.now();
  std::optional<FinishReason> cut;
  Status why;
  const Result<DirectOutcome> outcome = generate(waiting, cut, why);
  GenerationEnd end;
  end.prompt_tokens = static_cast<uint32_t>(waiting.request.request.prompt.size());
  end.queue_us = started - waiting.arrived;
  const std::lock_guard lock(mutex_);
  if (outcome.ok()) {
    end.reason = outcome->reason;
    end.cached_tokens = outcome->cached_tokens;
    end.generated_tokens = outcome->generated_tokens;
    end.prefill_us = outcome->prefill_us;
    end.decode_us = outcome->decode_us;
    if (end.reason == FinishReason::kClient) end.reason = stop_running_.value_or(end.reason);
    if (cut) end.reason = *cut;
    end.status = std::move(why);
  } else {
    end.reason = FinishReason::kError;
    end.status = outcome.status();
    ++snapshot_.faults;
  }
  snapshot_.scheduler.prompt_tokens += end.prompt_tokens;
  ++snapshot_.finished[static_cast<size_t>(end.reason)];
  waiting.request.stream->end(std::move(end));
}

// ---- DirectService ----

DirectService::DirectService(std::unique_ptr<DirectInference> inference, Options options,
                             const Clock& clock)
    : core_(std::make_shared<Core>(std::move(inference), options, clock)),
      watchdog_(std::make_unique<Watchdog>(watch_interval_us(core_->step_timeout_us()),
                                           [core = core_] { core->watch(); })),
      thread_([core = core_] {
        pthread_setname_np(pthread_self(), "direct");  // as the engine's, and for the same reason
        core->run();
      }) {}

DirectService::~DirectService() {
  if (thread_.joinable()) (void)stop(kNever);
}

Result<RequestHandle> DirectService::submit(GenerationRequest request,
                                            std::function<void()> on_ready) {
  return core_->submit(std::move(request), std::move(on_ready));
}

std::shared_ptr<RequestCanceller> DirectService::adopt(std::vector<Orphan> orphans) {
  for (Orphan& orphan : orphans) core_->add(std::move(orphan));
  return core_;
}

std::optional<TimeUs> DirectService::share_retry_us(uint64_t tenant, uint32_t requests) {
  return core_->share_retry_us(tenant, requests);
}

void DirectService::explain(std::vector<RequestId> ids, Explained done) {
  done(core_->explain(ids));
}

EngineSnapshot DirectService::snapshot() const {
  return core_->snapshot();
}

void DirectService::drain() {
  core_->drain();
}

bool DirectService::stop(TimeUs timeout_us) {
  core_->request_stop();
  const bool stopped = core_->wait_stopped(timeout_us);
  watchdog_ = nullptr;
  if (thread_.joinable()) stopped ? thread_.join() : thread_.detach();
  return stopped;
}

}  // namespace skein
