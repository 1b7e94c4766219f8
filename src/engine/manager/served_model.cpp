#include "engine/manager/served_model.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "base/log.h"

namespace skein {

Result<std::shared_ptr<ServedModel>> ServedModel::start(std::string id, ServedModelParts parts,
                                                        const Clock& clock, Owner owner) {
  std::shared_ptr<ServedModel> served(
      new ServedModel(std::move(id), std::move(parts), clock, std::move(owner)));
  if (!served->parts_.enable_batching) {
    SKEIN_TRY(served->start_direct());
  } else if (const Status started = served->start_engine(); !started.ok()) {
    log_error("{}: no batching, requests run one at a time: {}", served->id_, started.message());
    SKEIN_TRY(served->start_direct());
  }
  return served;
}

ServedModel::ServedModel(std::string id, ServedModelParts parts, const Clock& clock, Owner owner)
    : id_(std::move(id)), parts_(std::move(parts)), clock_(clock), owner_(std::move(owner)) {}

ServedModel::~ServedModel() = default;

Status ServedModel::start_engine() try {
  {
    const std::lock_guard lock(mutex_);
    if (is_away_) return unavailable("its device is lost");
  }
  SKEIN_ASSIGN(auto runner, parts_.make_runner());
  EngineOptions options = parts_.engine;
  // Weak: the engine belongs to the served model, not the other way round.
  options.hand_over = [self = weak_from_this()](std::vector<Submission> silent, const Status& why) {
    const std::shared_ptr<ServedModel> served = self.lock();
    return served ? served->replace_engine(std::move(silent), why) : nullptr;
  };
  SKEIN_ASSIGN(auto engine,
               BatchInferenceEngine::create(std::move(runner), std::move(options), clock_));
  const std::lock_guard lock(mutex_);
  if (stopping_) return unavailable("the model is being unloaded");
  engine_ = std::move(engine);
  return {};
} catch (const std::exception& error) {  // no memory, no thread
  return resource_exhausted("the engine of '{}' could not be made: {}", id_, error.what());
}

// nullptr while there is no device: requests wait.
Result<std::unique_ptr<DirectInference>> ServedModel::make_direct() const try {
  if (is_away_ || device_is_lost()) return std::unique_ptr<DirectInference>();
  return parts_.make_direct();
} catch (const BackendLost&) {
  return std::unique_ptr<DirectInference>();
}

Status ServedModel::start_direct() try {
  const std::lock_guard lock(mutex_);
  if (direct_) return {};
  SKEIN_ASSIGN(auto inference, make_direct());
  direct_ = DirectService::create(std::move(inference), parts_.engine, clock_,
                                  [lost = owner_.on_device_lost] {
                                    if (lost) lost();
                                  });
  return {};
} catch (const std::exception& error) {
  return resource_exhausted("'{}' cannot run requests one at a time: {}", id_, error.what());
}

// Called by the failing engine's thread, which ends after this; so the engine is replaced, and with
// it joined, on another thread.
std::shared_ptr<RequestCanceller> ServedModel::replace_engine(std::vector<Submission> silent,
                                                              const Status& why) {
  const bool is_lost = device_is_lost();
  log_warning("{}: the engine failed and is made anew; {} requests {} meanwhile: {}", id_,
              silent.size(), is_lost ? "wait" : "run one at a time", why.message());
  Status started = start_direct();
  std::shared_ptr<RequestCanceller> successor;
  if (started.ok()) {
    direct_requests_ += silent.size();
    successor = direct()->take_over(std::move(silent));
  } else {
    for (Submission& request : silent) {
      GenerationEnd end;
      end.reason = FinishReason::kError;
      end.status = started;
      request.stream->end(std::move(end));
    }
  }
  if (is_lost) {
    owner_.on_device_lost();
  } else {
    owner_.defer([self = weak_from_this()] {
      if (const std::shared_ptr<ServedModel> served = self.lock()) served->rebuild();
    });
  }
  return successor;
}

void ServedModel::rebuild() {
  drop_engine();
  ++rebuilds_;
  if (const Status again = start_engine(); !again.ok()) {
    log_error("{}: the engine could not be made anew, requests run one at a time: {}", id_,
              again.message());
  }
}

void ServedModel::drop_engine() {
  std::shared_ptr<BatchInferenceEngine> failed;
  {
    const std::lock_guard lock(mutex_);
    failed = std::exchange(engine_, nullptr);
    if (failed) add_counts(past_, failed->snapshot());
  }
}

Status ServedModel::leave_device() {
  constexpr TimeUs kPatienceUs = 10 * kUsPerSecond;
  {
    const std::lock_guard lock(mutex_);
    is_away_ = true;
  }
  if (const auto engine = this->engine()) {
    // One that has not noticed yet; it hands over what it has, and its runner ends with its thread.
    engine->lose(fmt::format("{} was lost", parts_.model->device()->id()));
    if (!engine->wait_for_end(kPatienceUs)) return unavailable("'{}' hangs in a step", id_);
  }
  drop_engine();
  if (const auto direct = this->direct(); direct && !direct->pause(kPatienceUs)) {
    return unavailable("'{}' hangs in a pass", id_);
  }
  parts_.model->leave_device();
  return {};
}

Status ServedModel::return_to_device() try {
  SKEIN_TRY(parts_.model->return_to_device());
  {
    const std::lock_guard lock(mutex_);
    is_away_ = false;
  }
  if (const auto direct = this->direct()) {
    SKEIN_ASSIGN(auto inference, parts_.make_direct());
    direct->resume(std::move(inference));
  }
  if (parts_.enable_batching) rebuild();
  return {};
} catch (const std::exception& error) {
  return unavailable("'{}' could not be loaded anew: {}", id_, error.what());
}

void ServedModel::give_up(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = why;
  }
  if (const auto direct = this->direct()) direct->end_waiting(why);
}

uint64_t ServedModel::max_request_tokens() const {
  const SchedulerConfig& config = parts_.engine.scheduler;
  return std::min<uint64_t>(config.max_context, uint64_t{config.pool_blocks} * kBlockTokens);
}

std::shared_ptr<BatchInferenceEngine> ServedModel::engine() const {
  const std::lock_guard lock(mutex_);
  return engine_;
}

std::shared_ptr<DirectService> ServedModel::direct() const {
  const std::lock_guard lock(mutex_);
  return direct_;
}

Result<RequestHandle> ServedModel::submit(GenerationRequest request,
                                          std::function<void()> on_ready) {
  {
    const std::lock_guard lock(mutex_);
    if (!given_up_.ok()) return given_up_;
  }
  if (const auto engine = this->engine();
      engine && engine->snapshot().state != EngineState::kFailed) {
    return engine->submit(std::move(request), std::move(on_ready));
  }
  SKEIN_TRY(start_direct());
  ++direct_requests_;
  return direct()->submit(std::move(request), std::move(on_ready));
}

std::optional<TimeUs> ServedModel::share_retry_us(uint64_t tenant) {
  if (const auto engine = this->engine()) return engine->share_retry_us(tenant);
  const auto direct = this->direct();
  return direct ? direct->share_retry_us(tenant) : std::nullopt;
}

void ServedModel::explain(std::vector<RequestId> ids, InferenceService::Explained done) {
  const auto engine = this->engine();
  const auto direct = this->direct();
  if (!engine && !direct) return done(std::vector<Explanation>());
  if (!direct) return engine->explain(std::move(ids), std::move(done));
  if (!engine) return direct->explain(std::move(ids), std::move(done));
  // Some of them may have been handed over; an id is live in one of the two at most.
  using Found = Result<std::vector<Explanation>>;
  engine->explain(ids, [direct, ids, done = std::move(done)](const Found& batched) {
    direct->explain(ids, [&](Found found) {
      if (found.ok() && batched.ok()) {
        found->insert(found->end(), batched->begin(), batched->end());
      }
      done(std::move(found));
    });
  });
}

void ServedModel::view(InferenceService::Viewed done) {
  const auto engine = this->engine();
  const auto direct = this->direct();
  using View = std::shared_ptr<const SchedulerView>;
  if (!engine && !direct) return done(View(std::make_shared<SchedulerView>()));
  if (!direct) return engine->view(std::move(done));
  if (!engine) return direct->view(std::move(done));
  engine->view([direct, done = std::move(done)](Result<View> batched) {
    direct->view([&](const Result<View>& alone) {
      if (!batched.ok() || !alone.ok()) return done(std::move(batched));
      auto both = std::make_shared<SchedulerView>(**batched);
      both->requests.insert(both->requests.end(), (*alone)->requests.begin(),
                            (*alone)->requests.end());
      done(View(std::move(both)));
    });
  });
}

EngineSnapshot ServedModel::snapshot() const {
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot;
  snapshot.state = EngineState::kFailed;
  if (engine_) snapshot = engine_->snapshot();
  add_counts(snapshot, past_);
  if (parts_.model && parts_.model->forms()) snapshot.forms = parts_.model->forms()->counts();
  if (!direct_) return snapshot;
  const EngineSnapshot direct = direct_->snapshot();
  add_counts(snapshot, direct);
  if (snapshot.state == EngineState::kFailed) snapshot.state = direct.state;
  snapshot.live += direct.live;
  SchedulerStats& stats = snapshot.scheduler;
  stats.running += direct.scheduler.running;
  for (uint32_t p = 0; p < kPriorities; ++p) {
    stats.waiting[p] += direct.scheduler.waiting[p];
    stats.oldest_arrival[p] = std::min(stats.oldest_arrival[p], direct.scheduler.oldest_arrival[p]);
  }
  return snapshot;
}

bool ServedModel::idle() const {
  const auto engine = this->engine();
  const auto direct = this->direct();
  return (!engine || engine->snapshot().live == 0) && (!direct || direct->snapshot().live == 0);
}

void ServedModel::drain() {
  if (const auto engine = this->engine()) engine->drain();
  if (const auto direct = this->direct()) direct->drain();
}

bool ServedModel::stop(TimeUs timeout_us) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const auto engine = this->engine();
  const auto direct = this->direct();
  const bool engine_stopped = !engine || engine->stop(timeout_us);
  const bool direct_stopped = !direct || direct->stop(timeout_us);
  return engine_stopped && direct_stopped;
}

}  // namespace skein
