#include "engine/manager/scheduler_manager.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <new>

#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

// Tells of a load's end, however it ends.
class AfterLoad {
 public:
  AfterLoad(const SchedulerManager::Options& options, const ModelConfig& config)
      : options_(options), config_(config) {}
  ~AfterLoad() {
    if (options_.after_load) options_.after_load(config_);
  }
  AfterLoad(const AfterLoad&) = delete;
  AfterLoad& operator=(const AfterLoad&) = delete;

 private:
  const SchedulerManager::Options& options_;
  const ModelConfig& config_;
};

// How long an engine may take to notice that it should stop: a step, at most.
constexpr TimeUs kStopPatienceUs = 2 * kUsPerSecond;

}  // namespace

ModelLease::~ModelLease() {
  if (manager_ != nullptr) manager_->release(served_);
}

SchedulerManager::SchedulerManager(Options options, Loader loader, const Clock& clock)
    : options_(std::move(options)), loader_(std::move(loader)), clock_(clock) {
  thread_ = std::thread([this] { serve_jobs(); });
}

SchedulerManager::~SchedulerManager() {
  (void)shutdown(0);
}

Status SchedulerManager::add(ModelConfig config) {
  const std::lock_guard lock(mutex_);
  if (find(config.id) != nullptr) return already_exists("model '{}' is there already", config.id);
  entries_.push_back(std::make_unique<Entry>());
  entries_.back()->config = std::move(config);
  return {};
}

bool SchedulerManager::has(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return find(id) != nullptr;
}

SchedulerManager::Entry* SchedulerManager::find(const std::string& id) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& entry) { return entry->config.id == id; });
  return it == entries_.end() ? nullptr : it->get();
}

void SchedulerManager::acquire(const std::string& id, Acquired done) {
  std::unique_lock lock(mutex_);
  Entry* entry = find(id);
  Status refused;
  if (entry == nullptr) {
    refused = not_found("there is no model '{}'", id);
  } else if (draining_) {
    refused = unavailable("the server is draining");
  }
  if (!refused.ok()) {
    lock.unlock();
    return done(std::move(refused));
  }
  entry->last_used = ++uses_;
  if (entry->state == ModelState::kReady) {
    ++entry->leases;
    ModelLease lease(*this, entry->served);
    lock.unlock();
    return done(std::move(lease));
  }
  entry->waiters.push_back(std::move(done));
  // One load for all who wait. A model on its way out is loaded again when it is gone.
  if (entry->state == ModelState::kLoading) return;
  if (entry->state == ModelState::kUnloaded) entry->state = ModelState::kLoading;
  jobs_.push_back([this, id] { load(id); });
  changed_.notify_all();
}

Result<ModelLease> SchedulerManager::acquire(const std::string& id) {
  std::promise<Result<ModelLease>> promise;
  std::future<Result<ModelLease>> result = promise.get_future();
  acquire(id, [&promise](Result<ModelLease> lease) { promise.set_value(std::move(lease)); });
  return result.get();
}

void SchedulerManager::release(const std::shared_ptr<ServedModel>& served) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(served->id());
  SKEIN_CHECK(entry != nullptr && entry->leases > 0, "a lease of '{}' was not counted",
              served->id());
  --entry->leases;
  changed_.notify_all();
}

void SchedulerManager::post(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void SchedulerManager::serve_jobs() {
  const PatientScope patient;  // everybody who waits for a model waits for this thread
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception& error) {
      log_error("a model could not be loaded or made anew: {}", error.what());
    }
    job = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

void SchedulerManager::load(const std::string& id) {
  std::unique_lock lock(mutex_);
  Entry& entry = *find(id);
  changed_.wait(lock, [&] { return entry.state != ModelState::kUnloading; });
  if (entry.waiters.empty()) return;  // an earlier job served them
  entry.state = ModelState::kLoading;
  if (options_.share != nullptr) options_.share->report(0, 1);
  at_hand_ = &entry;
  lock.unlock();
  const TimeUs started = clock_.now();
  Result<std::shared_ptr<ServedModel>> served = try_load(entry);
  lock.lock();
  at_hand_ = nullptr;
  std::vector<Acquired> waiters = std::move(entry.waiters);
  entry.waiters.clear();
  if (served.ok()) {
    log_info("model {} loaded in {} ms", id, (clock_.now() - started) / kUsPerMs);
    entry.state = ModelState::kReady;
    entry.failure = {};
    entry.served = *served;
    entry.device = (*served)->device();
    entry.leases += static_cast<uint32_t>(waiters.size());
    entry.last_used = ++uses_;
    ++stats_.loads;
    if (draining_) entry.served->drain();
  } else {
    log_error("model {} could not be loaded: {}", id, served.message());
    entry.state = ModelState::kUnloaded;
    entry.failure = served.status();
    ++stats_.failed_loads;
    // It may have found a device lost, of which the others on it need not know yet.
    jobs_.push_back([this] { recover(); });
  }
  changed_.notify_all();
  lock.unlock();
  for (Acquired& done : waiters) {
    try {
      served.ok() ? done(ModelLease(*this, *served)) : done(served.status());
    } catch (const std::exception& error) {
      log_error("one who waited for model {} could not go on: {}", id, error.what());
    }
  }
}

// A load that throws fails alone: no memory, no thread, or a fault of the loader's.
Result<std::shared_ptr<ServedModel>> SchedulerManager::try_load(const Entry& entry) try {
  const ModelConfig config = [&] {
    const std::lock_guard lock(mutex_);
    return entry.config;
  }();
  if (options_.before_load) SKEIN_TRY(options_.before_load(config));
  const AfterLoad after_load(options_, config);
  const auto make_room = [&](uint64_t bytes) { return this->make_room(entry, bytes); };
  SKEIN_ASSIGN(ServedModelParts parts, loader_(config, make_room));
  return ServedModel::start(
      config.id, std::move(parts), clock_,
      {[this](Job job) { post(std::move(job)); }, [this] { post([this] { recover(); }); }});
} catch (const std::bad_alloc&) {
  return Status(Code::kResourceExhausted, "out of memory");  // short enough not to allocate
} catch (const std::exception& error) {
  return internal_error("the load threw: {}", error.what());
}

uint64_t SchedulerManager::used_bytes() const {
  uint64_t bytes = 0;
  for (const auto& entry : entries_) {
    if (entry->served) bytes += entry->served->memory_bytes();
  }
  return bytes;
}

uint32_t SchedulerManager::loaded_models() const {
  return static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& e) { return !!e->served; }));
}

Result<uint64_t> SchedulerManager::make_room(const Entry& newcomer, uint64_t bytes) {
  if (bytes > options_.memory_bytes) {
    return resource_exhausted("model '{}' needs {} MiB; the memory budget is {} MiB",
                              newcomer.config.id, bytes >> 20, options_.memory_bytes >> 20);
  }
  std::unique_lock lock(mutex_);
  while (true) {
    const uint64_t used = used_bytes();
    const bool fits = used + bytes <= options_.memory_bytes &&
                      (options_.max_models == 0 || loaded_models() < options_.max_models);
    if (fits) return options_.memory_bytes - used;
    Entry* victim = nullptr;
    for (const auto& entry : entries_) {
      if (entry->state != ModelState::kReady || entry->leases > 0 || entry->config.pinned) continue;
      if (victim == nullptr || entry->last_used < victim->last_used) victim = entry.get();
    }
    if (victim == nullptr) {
      return unavailable("no room for model '{}': every loaded model is in use or pinned",
                         newcomer.config.id);
    }
    log_info("model {} goes to make room for {}", victim->config.id, newcomer.config.id);
    ++stats_.evictions;
    (void)unload_locked(*victim, lock);
  }
}

// Takes a ready model out of memory, without the lock while that takes time.
bool SchedulerManager::unload_locked(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.state = ModelState::kUnloading;
  std::shared_ptr<ServedModel> served = std::move(entry.served);
  entry.served = nullptr;
  // At the same moment as it goes, so that no count is ever seen to shrink.
  add_counts(entry.past, served->snapshot());
  stats_.direct_requests += served->direct_requests();
  lock.unlock();
  const bool stopped = served->stop(kStopPatienceUs);
  served.reset();
  lock.lock();
  if (!stopped) left_behind_ = true;
  // Whoever asked meanwhile is waiting, and has posted the job that loads it again.
  entry.state = entry.waiters.empty() ? ModelState::kUnloaded : ModelState::kLoading;
  changed_.notify_all();
  return stopped;
}

// On the loading thread. A device that is lost is lost to every model on it, and can be had again
// when the last one has left it.
void SchedulerManager::recover() {
  std::vector<std::pair<Entry*, std::shared_ptr<ServedModel>>> lost;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {  // who is on the way out is on the device, too
      return std::none_of(entries_.begin(), entries_.end(),
                          [](const auto& entry) { return entry->state == ModelState::kUnloading; });
    });
    for (const auto& entry : entries_) {
      if (entry->served && entry->served->device_is_lost()) {
        lost.emplace_back(entry.get(), entry->served);
      }
    }
  }
  Status gone;
  std::vector<Status> left;
  left.reserve(lost.size());
  for (const auto& [entry, served] : lost) left.push_back(served->leave_device());
  for (size_t i = 0; i < lost.size(); ++i) {
    auto& [entry, served] = lost[i];
    const TimeUs started = clock_.now();
    Status back = left[i];
    if (back.ok() && !gone.ok() && served->device_is_lost()) back = gone;  // it has just been tried
    if (back.ok()) back = served->return_to_device();
    if (back.ok()) {
      log_info("model {} loaded anew in {} ms", served->id(), (clock_.now() - started) / kUsPerMs);
    } else {
      log_error("model {} is gone with its device: {}", served->id(), back.message());
      drop(*entry, std::move(served), back);
      gone = back;
    }
  }
  if (!gone.ok() && options_.on_device_gone) options_.on_device_gone(gone);
}

// What can be used no more. Whoever is told, and asks again, has it loaded again.
void SchedulerManager::drop(Entry& entry, std::shared_ptr<ServedModel> served, const Status& why) {
  std::unique_lock lock(mutex_);
  entry.failure = why;
  ++stats_.failed_loads;
  if (entry.served) entry.state = ModelState::kUnloading;
  lock.unlock();
  served->give_up(why);
  served.reset();
  lock.lock();
  if (entry.served) (void)unload_locked(entry, lock);
}

Status SchedulerManager::unload(const std::string& id) {
  std::unique_lock lock(mutex_);
  Entry* entry = find(id);
  if (entry == nullptr) return not_found("there is no model '{}'", id);
  if (entry->state == ModelState::kUnloaded) return {};
  if (entry->state != ModelState::kReady) return unavailable("model '{}' is being loaded", id);
  if (entry->leases > 0) {
    return unavailable("model '{}' serves {} requests", id, entry->leases);
  }
  (void)unload_locked(*entry, lock);
  return {};
}

std::vector<ModelStatus> SchedulerManager::models() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelStatus> models;
  models.reserve(entries_.size());
  for (const auto& entry : entries_) {
    ModelStatus& model =
        models.emplace_back(ModelStatus{entry->config, entry->state, entry->failure, entry->leases,
                                        entry->served, entry->past, entry->device, std::nullopt});
    if (at_hand_ == entry.get() && options_.share != nullptr) {
      model.loaded_share = options_.share->share();
    }
  }
  return models;
}

ManagerStats SchedulerManager::stats() const {
  const std::lock_guard lock(mutex_);
  ManagerStats stats = stats_;
  stats.used_bytes = used_bytes();
  stats.limit_bytes = options_.memory_bytes;
  for (const auto& entry : entries_) {
    if (entry->served) stats.direct_requests += entry->served->direct_requests();
  }
  return stats;
}

void SchedulerManager::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  for (const auto& entry : entries_) {
    if (entry->served) entry->served->drain();
  }
}

bool SchedulerManager::shutdown(TimeUs timeout_us) {
  drain();
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return !left_behind_;
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us);
  const auto at_rest = [this] {
    return std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
      return entry->state != ModelState::kLoading && (!entry->served || entry->served->idle());
    });
  };
  // An engine does not announce its last request, so look often enough that nobody notices.
  while (!at_rest() && std::chrono::steady_clock::now() < until) {
    changed_.wait_for(lock, std::chrono::milliseconds(2));
  }
  stopping_ = true;
  changed_.notify_all();
  lock.unlock();
  thread_.join();
  lock.lock();
  for (const auto& entry : entries_) {
    std::vector<Acquired> waiters = std::move(entry->waiters);
    entry->waiters.clear();
    if (entry->state == ModelState::kReady) (void)unload_locked(*entry, lock);
    lock.unlock();
    for (Acquired& done : waiters) done(unavailable("the server is stopping"));
    lock.lock();
  }
  return !left_behind_;
}

}  // namespace skein
