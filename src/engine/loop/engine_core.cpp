// The door: what other threads may do to an engine.
#include "engine/loop/engine_core.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <pthread.h>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace skein {
namespace {

// Every live request sends one Submit and at most one Cancel, so neither can be refused for room.
size_t mailbox_capacity(const SchedulerConfig& config) {
  constexpr size_t kOthers = 256;
  return 2 * (size_t{config.max_queue} + config.max_batch) + kOthers;
}

// Explanations that may wait for the engine, and for how long.
constexpr size_t kMaxExplains = 256;
constexpr TimeUs kExplainPatienceUs = 10 * kUsPerSecond;

}  // namespace

EngineCore::EngineCore(std::unique_ptr<StepRunner> runner,
                       std::unique_ptr<ContinuousBatchingScheduler> scheduler,
                       EngineOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      mailbox_(mailbox_capacity(scheduler->config())),
      door_(door_config(options_.scheduler)),
      runner_(std::move(runner)),
      scheduler_(std::move(scheduler)),
      steps_(scheduler_->config().depth) {
  const uint32_t batch = scheduler_->config().max_batch;
  for (Step& step : steps_) {
    step.live.reserve(batch);
    step.tasks.reserve(batch);
    step.outputs.resize(batch);
    for (RowOutput& output : step.outputs) output.sampled.reserve(1);
  }
  result_.rows.reserve(batch);
  result_.tokens.reserve(batch);
  ended_.reserve(batch);
  open_slots_ = batch;
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
  const RequestId id(next_id_.fetch_add(1));
  auto stream = std::make_shared<TokenStream>(std::move(on_ready));
  const TimeUs now = clock_.now();
  Watched watched{stream};
  if (request.timeout_us < kNever - now) watched.deadline = now + request.timeout_us;
  {
    const std::lock_guard lock(watched_mutex_);
    watched_.emplace(id, std::move(watched));
  }
  if (Status entered = enter(request, now); !entered.ok()) {
    unwatch(id);
    return entered;
  }
  live_count_.fetch_add(1);
  const uint64_t tenant = request.tenant;
  if (Status sent = mailbox_.push(Submit{id, std::move(request), stream, now}); !sent.ok()) {
    leave(tenant);
    live_count_.fetch_sub(1);
    unwatch(id);
    return unavailable("the engine has stopped");
  }
  return RequestHandle(id, std::move(stream), shared_from_this());
}

// The scheduler bounds its queue too, but it answers between two steps, and this answers now.
Status EngineCore::enter(const GenerationRequest& request, TimeUs now) {
  const std::lock_guard lock(door_mutex_);
  return enter_queue(door_, request, now);
}

void EngineCore::leave(uint64_t tenant) {
  const std::lock_guard lock(door_mutex_);
  door_.leave(tenant);
}

std::optional<TimeUs> EngineCore::share_retry_us(uint64_t tenant, uint32_t requests) {
  const std::lock_guard lock(door_mutex_);
  return door_.share_retry_us(tenant, requests, clock_.now());
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

void EngineCore::explain(std::vector<RequestId> ids, InferenceService::Explained done) {
  {
    const std::lock_guard lock(explain_mutex_);
    if (explains_.size() < kMaxExplains) {
      explains_.push_back({std::move(ids), std::move(done), clock_.now()});
      done = nullptr;
    }
  }
  if (done) return done(resource_exhausted("{} explanations wait already", kMaxExplains));
  // After it was added: a loop that ends looks for the last time when the mailbox is closed.
  if (!mailbox_.closed()) return mailbox_.wake();
  for (Explain& late : take_explains(kNever)) late.done(unavailable("the engine has stopped"));
}

// Those that were asked before that: the first ones, for they stand in the order of their asking.
std::vector<EngineCore::Explain> EngineCore::take_explains(TimeUs asked_before) {
  std::vector<Explain> taken;
  const std::lock_guard lock(explain_mutex_);
  const auto stays = std::find_if(explains_.begin(), explains_.end(),
                                  [&](const Explain& e) { return e.asked >= asked_before; });
  taken.assign(std::make_move_iterator(explains_.begin()), std::make_move_iterator(stays));
  explains_.erase(explains_.begin(), stays);
  return taken;
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

void EngineCore::unwatch(RequestId id) {
  const std::lock_guard lock(watched_mutex_);
  watched_.erase(id);
}

Status EngineCore::hang_status() const {
  return deadline_exceeded("a step has not come back within the step timeout of {} ms",
                           options_.step_timeout_us / kUsPerMs);
}

void EngineCore::watch() {
  const TimeUs now = clock_.now();
  watch_step(now);
  for (Explain& late : take_explains(now - kExplainPatienceUs)) {
    late.done(unavailable("the engine is busy with a step that takes long"));
  }
}

void EngineCore::watch_step(TimeUs now) {
  const std::lock_guard lock(step_mutex_);
  const TimeUs patience_us = std::min(kSlowStepUs, options_.step_timeout_us);
  if (step_started_ == kNever || now - step_started_ < patience_us) return;
  const bool hangs = now - step_started_ >= options_.step_timeout_us;
  if (hangs && !std::exchange(step_given_up_, true)) {
    log_error("a step has not come back in {} ms; {} requests that run or wait end",
              (now - step_started_) / kUsPerMs, live_count_.load());
    hung_ = true;
  }
  std::vector<Watched> ends;
  {
    const std::lock_guard watched_lock(watched_mutex_);
    for (const auto& [id, watched] : watched_) {
      if (hangs || watched.deadline <= now) ends.push_back(watched);
    }
  }
  for (const Watched& watched : ends) {
    GenerationEnd end;
    const bool own_deadline = watched.deadline <= now;
    end.reason = own_deadline ? FinishReason::kTimedOut : FinishReason::kError;
    if (!own_deadline) end.status = hang_status();
    watched.stream->end(std::move(end));
  }
}

// ---- BatchInferenceEngine ----

Result<std::unique_ptr<BatchInferenceEngine>> BatchInferenceEngine::create(
    std::unique_ptr<StepRunner> runner, EngineOptions options, const Clock& clock) {
  // The door decides who may wait. The scheduler counts those that were preempted, too.
  SchedulerConfig config = options.scheduler;
  config.max_queue = queue_places(config.max_queue, Priority::HIGH) + config.max_batch;
  config.depth = runner->depth();
  SKEIN_ASSIGN(auto scheduler, ContinuousBatchingScheduler::create(config));
  std::unique_ptr<BatchInferenceEngine> engine(
      new BatchInferenceEngine(std::make_shared<EngineCore>(std::move(runner), std::move(scheduler),
                                                            std::move(options), clock)));
  try {
    engine->watchdog_ =
        std::make_unique<Watchdog>(watch_interval_us(engine->core_->step_timeout_us()),
                                   [core = engine->core_] { core->watch(); });
    engine->thread_ = std::thread([core = engine->core_] {
      // For top and debuggers. By the thread itself: for another it is a write to /proc, which a
      // sandbox refuses.
      pthread_setname_np(pthread_self(), "engine");
      core->run();
    });
  } catch (const std::system_error& error) {
    return unavailable("no thread for the engine: {}", error.what());
  }
  return engine;
}

BatchInferenceEngine::~BatchInferenceEngine() {
  if (thread_.joinable()) (void)stop(kNever);
}

Result<RequestHandle> BatchInferenceEngine::submit(GenerationRequest request,
                                                   std::function<void()> on_ready) {
  return core_->submit(std::move(request), std::move(on_ready));
}

std::optional<TimeUs> BatchInferenceEngine::share_retry_us(uint64_t tenant, uint32_t requests) {
  return core_->share_retry_us(tenant, requests);
}

void BatchInferenceEngine::explain(std::vector<RequestId> ids, Explained done) {
  core_->explain(std::move(ids), std::move(done));
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
  watchdog_ = nullptr;
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
