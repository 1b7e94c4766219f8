// The door: what other threads may do to an engine.
#include "engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <utility>

#include "base/log.h"
#include "engine/request_class.h"

namespace skein {
namespace {

// Every live request sends one Submit and at most one Cancel, so neither can be refused for room.
size_t mailbox_capacity(const SchedulerConfig& config) {
  constexpr size_t kOthers = 256;
  return 2 * (size_t{config.max_queue} + config.max_batch) + kOthers;
}

constexpr auto kExplainPatience = std::chrono::seconds(10);

}  // namespace

EngineCore::EngineCore(std::unique_ptr<StepRunner> runner,
                       std::unique_ptr<ContinuousBatchingScheduler> scheduler,
                       EngineOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      mailbox_(mailbox_capacity(scheduler->config())),
      runner_(std::move(runner)),
      scheduler_(std::move(scheduler)) {
  const uint32_t batch = scheduler_->config().max_batch;
  tasks_.reserve(batch);
  outputs_.resize(batch);
  result_.rows.reserve(batch);
  step_streams_.reserve(batch);
  ended_.reserve(batch);
  counters_.scheduler = scheduler_->stats();
  snapshot_ = counters_;
}

Result<RequestHandle> EngineCore::submit(GenerationRequest request,
                                         std::function<void()> on_ready) {
  const SchedulerConfig& config = options_.scheduler;
  if (const EngineState state = snapshot().state; state != EngineState::kRunning) {
    return unavailable("the engine is {}", name_of(state));
  }
  SKEIN_TRY(check_request(request, config));
  // The scheduler bounds its queue too, but it answers between two steps, and this answers now.
  const uint32_t places = queue_places(config.max_queue, request.priority);
  if (const uint32_t waiting = waiting_.fetch_add(1); waiting >= places) {
    waiting_.fetch_sub(1);
    return resource_exhausted("{} requests wait; the queue holds {} of this class", waiting,
                              places);
  }
  const RequestId id(next_id_.fetch_add(1));
  auto stream = std::make_shared<TokenStream>(std::move(on_ready));
  live_count_.fetch_add(1);
  if (Status sent = mailbox_.push(Submit{id, std::move(request), stream, clock_.now()});
      !sent.ok()) {
    waiting_.fetch_sub(1);
    live_count_.fetch_sub(1);
    return unavailable("the engine has stopped");
  }
  return RequestHandle(id, std::move(stream), shared_from_this());
}

void EngineCore::cancel(RequestId id, FinishReason reason) {
  if (mailbox_.push(Cancel{id, reason}).ok()) return;
  // Closed: whatever was live has ended, or went to the successor.
  std::shared_ptr<RequestCanceller> successor;
  {
    const std::lock_guard lock(snapshot_mutex_);
    successor = successor_;
  }
  if (successor) successor->cancel(id, reason);
}

Result<Explanation> EngineCore::explain(RequestId id) {
  Explain message{id, {}};
  std::future<Result<Explanation>> answer = message.answer.get_future();
  SKEIN_TRY(mailbox_.push(std::move(message)));
  if (answer.wait_for(kExplainPatience) != std::future_status::ready) {
    return unavailable("the engine is busy with a step that takes long");
  }
  return answer.get();
}

EngineSnapshot EngineCore::snapshot() const {
  const std::lock_guard lock(snapshot_mutex_);
  EngineSnapshot snapshot = snapshot_;
  snapshot.live = live_count_;
  if (snapshot.state != EngineState::kRunning) return snapshot;
  if (hung_) {
    snapshot.state = EngineState::kHung;
  } else if (draining_) {
    snapshot.state = EngineState::kDraining;
  }
  return snapshot;
}

void EngineCore::drain() {
  draining_ = true;
  (void)mailbox_.push(Drain{});  // refused only where the engine has stopped already
}

void EngineCore::request_stop() {
  stopping_ = true;
  mailbox_.wake();
}

bool EngineCore::wait_stopped(TimeUs timeout_us) {
  std::unique_lock lock(stopped_mutex_);
  const auto stopped = [this] { return stopped_; };
  if (timeout_us == kNever) {
    stopped_changed_.wait(lock, stopped);
    return true;
  }
  return stopped_changed_.wait_for(lock, std::chrono::microseconds(timeout_us), stopped);
}

void EngineCore::check_step() {
  const std::lock_guard lock(step_mutex_);
  const TimeUs now = clock_.now();
  if (step_started_ == kNever || step_given_up_ || now - step_started_ < options_.step_timeout_us) {
    return;
  }
  step_given_up_ = true;
  log_error("a step of {} requests has not come back in {} ms; they end as timed out",
            step_streams_.size(), (now - step_started_) / kUsPerMs);
  hung_ = true;
  for (const std::shared_ptr<TokenStream>& stream : step_streams_) {
    GenerationEnd end;
    end.reason = FinishReason::kTimedOut;
    end.status = deadline_exceeded("a step took longer than the step timeout of {} ms",
                                   options_.step_timeout_us / kUsPerMs);
    stream->end(std::move(end));
  }
}

// ---- BatchInferenceEngine ----

Result<std::unique_ptr<BatchInferenceEngine>> BatchInferenceEngine::create(
    std::unique_ptr<StepRunner> runner, EngineOptions options, const Clock& clock) {
  // The door decides who may wait. The scheduler counts those that were preempted, too.
  SchedulerConfig config = options.scheduler;
  config.max_queue = queue_places(config.max_queue, Priority::HIGH) + config.max_batch;
  SKEIN_ASSIGN(auto scheduler, ContinuousBatchingScheduler::create(config));
  std::unique_ptr<BatchInferenceEngine> engine(
      new BatchInferenceEngine(std::make_shared<EngineCore>(std::move(runner), std::move(scheduler),
                                                            std::move(options), clock)));
  engine->thread_ = std::thread([core = engine->core_] { core->run(); });
  pthread_setname_np(engine->thread_.native_handle(), "engine");  // for top and debuggers
  engine->watchdog_ = std::thread([&self = *engine] { self.watch(); });
  return engine;
}

BatchInferenceEngine::~BatchInferenceEngine() {
  if (thread_.joinable()) (void)stop(kNever);
}

void BatchInferenceEngine::watch() {
  // Often enough that a request is given up within an eighth of the timeout after its time.
  const auto interval = std::chrono::microseconds(
      std::clamp<TimeUs>(core_->step_timeout_us() / 8, kUsPerMs, kUsPerSecond));
  std::unique_lock lock(watch_mutex_);
  while (!watch_changed_.wait_for(lock, interval, [this] { return watch_ends_; })) {
    core_->check_step();
  }
}

Result<RequestHandle> BatchInferenceEngine::submit(GenerationRequest request,
                                                   std::function<void()> on_ready) {
  return core_->submit(std::move(request), std::move(on_ready));
}

Result<Explanation> BatchInferenceEngine::explain(RequestId id) {
  return core_->explain(id);
}

EngineSnapshot BatchInferenceEngine::snapshot() const {
  return core_->snapshot();
}

void BatchInferenceEngine::drain() {
  core_->drain();
}

bool BatchInferenceEngine::stop(TimeUs timeout_us) {
  core_->request_stop();
  const bool stopped = core_->wait_stopped(timeout_us);
  {
    const std::lock_guard lock(watch_mutex_);
    watch_ends_ = true;
  }
  watch_changed_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  if (thread_.joinable()) {
    if (stopped) {
      thread_.join();
    } else {
      log_error("the engine's thread hangs in a step and is left behind");
      thread_.detach();
    }
  }
  return stopped;
}

}  // namespace skein
