#include "engine/loop/inference_service.h"

#include <chrono>
#include <future>
#include <new>
#include <pthread.h>

#include "base/log.h"

namespace skein {
namespace {

// Longer than the service itself takes to give up.
constexpr auto kPatience = std::chrono::seconds(15);

// What is wrong with a request whatever the state of an engine with this configuration.
Status check_request(GenerationRequest& request, const SchedulerConfig& config) {
  SKEIN_TRY(request.sampling.validate(config.vocab_size));
  RequestSpec spec = spec_of(request);
  spec.prompt.swap(request.prompt);  // lent, not copied
  Status sound = ContinuousBatchingScheduler::check_spec(config, spec);
  spec.prompt.swap(request.prompt);
  return sound;
}

// Takes a place at the door; kResourceExhausted, with both numbers, when there is none.
Status enter_queue(QueueDoor& door, const GenerationRequest& request, TimeUs now) try {
  const DoorAnswer answer =
      door.enter({request.tenant, request.priority, request.follows, request.background}, now);
  switch (answer.kind) {
    case DoorAnswer::Kind::kEntered:
      break;
    case DoorAnswer::Kind::kQueueFull:
      return resource_exhausted("{} requests would wait; the queue holds {} of this class",
                                answer.wanted, answer.places);
    case DoorAnswer::Kind::kShareFull:
      return resource_exhausted(
          "{} requests of this key would wait; its share of the queue is {} now", answer.wanted,
          answer.places);
  }
  return {};
} catch (const std::bad_alloc&) {
  return {Code::kResourceExhausted, "out of memory"};
}

}  // namespace

RequestSpec spec_of(const GenerationRequest& request) {
  RequestSpec spec;
  spec.priority = request.priority;
  spec.max_new_tokens = request.max_tokens;
  spec.salt = request.salt;
  spec.ends_when_computed = request.pooling != Pooling::kNone;
  spec.wants_every_row = request.pooling == Pooling::kMean;
  spec.second_from = request.second_from;
  return spec;
}

InferenceService::InferenceService(const ServiceOptions& options, uint32_t slots, uint64_t first_id,
                                   const Clock& clock)
    : options_(options),
      clock_(clock),
      watch_(options.step_timeout_us),
      next_id_(first_id),
      door_({options.scheduler.max_queue, slots, options.scheduler.us_per_class}) {}

Result<RequestHandle> InferenceService::submit(GenerationRequest request,
                                               std::function<void()> on_ready) {
  if (const EngineState state = InferenceService::snapshot().state;
      state != EngineState::kRunning) {
    return unavailable("the engine is {}", name_of(state));
  }
  SKEIN_TRY(check_request(request, options_.scheduler));
  const RequestId id(next_id_.fetch_add(1));
  auto stream = std::make_shared<TokenStream>(std::move(on_ready));
  const uint64_t tenant = request.tenant;
  Submission submission{id, std::move(request), stream, clock_.now()};
  const TimeUs timeout_us = submission.request.timeout_us;
  if (timeout_us < kNever - submission.arrived) {
    submission.deadline = submission.arrived + timeout_us;
  }
  watch_.add(id, stream, submission.deadline);
  {
    // The scheduler bounds its queue too, but it answers between two steps, and this answers now.
    const std::lock_guard lock(queue_mutex_);
    if (Status entered = enter_queue(door_, submission.request, submission.arrived);
        !entered.ok()) {
      watch_.remove(id);
      return entered;
    }
  }
  live_count_.fetch_add(1);
  if (Status accepted = accept(std::move(submission)); !accepted.ok()) {
    leave_queue(tenant);
    forget(id);
    return accepted;
  }
  return RequestHandle(id, std::move(stream), shared_from_this());
}

void InferenceService::leave_queue(uint64_t tenant) {
  const std::lock_guard lock(queue_mutex_);
  door_.leave(tenant);
}

void InferenceService::note_end(TimeUs now) {
  const std::lock_guard lock(queue_mutex_);
  door_.note_end(now);
}

void InferenceService::set_open_slots(uint32_t slots) {
  const std::lock_guard lock(queue_mutex_);
  door_.set_open(slots);
}

std::optional<TimeUs> InferenceService::share_retry_us(uint64_t tenant) {
  const std::lock_guard lock(queue_mutex_);
  return door_.share_retry_us(tenant, clock_.now());
}

void InferenceService::forget(RequestId id) {
  watch_.remove(id);
  live_count_.fetch_sub(1);
}

EngineSnapshot InferenceService::snapshot() const {
  const std::lock_guard lock(snapshot_mutex_);
  EngineSnapshot snapshot = snapshot_;
  snapshot.live = live_count_;
  if (snapshot.state != EngineState::kRunning) return snapshot;
  if (watch_.hung()) {
    snapshot.state = EngineState::kHung;
  } else if (draining_) {
    snapshot.state = EngineState::kDraining;
  }
  return snapshot;
}

void InferenceService::publish(const EngineSnapshot& snapshot) {
  const std::lock_guard lock(snapshot_mutex_);
  snapshot_ = snapshot;
}

void InferenceService::set_state(EngineState state) {
  const std::lock_guard lock(snapshot_mutex_);
  snapshot_.state = state;
}

void InferenceService::start_threads(const char* name) {
  watchdog_ =
      std::make_unique<Watchdog>(watch_interval_us(options_.step_timeout_us), [this] { watch(); });
  try {
    thread_ = std::thread([self = shared_from_this(), name] {
      // By the thread itself: for another it is a write to /proc, which a sandbox refuses.
      pthread_setname_np(pthread_self(), name);
      self->serve();
      const std::lock_guard lock(self->stopped_mutex_);
      self->stopped_ = true;
      self->stopped_changed_.notify_all();
    });
  } catch (...) {
    watchdog_.reset();  // it must not look at a service that is being destroyed
    throw;
  }
  self_ = shared_from_this();
}

void InferenceService::Stop::operator()(InferenceService* service) const {
  const std::shared_ptr<InferenceService> last = std::move(service->self_);
  if (last->thread_.joinable()) (void)last->stop(kNever);
}

bool InferenceService::wait_for_end(TimeUs timeout_us) {
  std::unique_lock lock(stopped_mutex_);
  const auto over = [this] { return stopped_; };
  if (timeout_us != kNever) {
    return stopped_changed_.wait_for(lock, std::chrono::microseconds(timeout_us), over);
  }
  stopped_changed_.wait(lock, over);
  return true;
}

bool InferenceService::stop(TimeUs timeout_us) {
  stopping_ = true;
  wake();
  const bool stopped = wait_for_end(timeout_us);
  watchdog_ = nullptr;
  if (!thread_.joinable()) return stopped;
  if (stopped) {
    thread_.join();
  } else {
    log_error("the engine's thread hangs in a step and is left behind");
    thread_.detach();
  }
  return stopped;
}

Result<Explanation> InferenceService::explain(RequestId id) {
  // Shared: the answer may come when nobody waits for it any more.
  const auto answer = std::make_shared<std::promise<Result<std::vector<Explanation>>>>();
  std::future<Result<std::vector<Explanation>>> future = answer->get_future();
  explain({id}, [answer](Result<std::vector<Explanation>> e) { answer->set_value(std::move(e)); });
  if (future.wait_for(kPatience) != std::future_status::ready) {
    return unavailable("the engine is busy with a step that takes long");
  }
  SKEIN_ASSIGN(const std::vector<Explanation> found, future.get());
  if (found.empty()) return not_found("request {} is not live", id.value);
  return found.front();
}

}  // namespace skein
