// SchedulerManager: which models there are, which of them are in memory, and who uses them.
//
//   manager.add({.id = "smollm2", .path = path});
//   SKEIN_ASSIGN(ModelLease lease, manager.acquire("smollm2"));
//   SKEIN_ASSIGN(RequestHandle request, lease->submit(std::move(wanted), {}));
//
// A model is loaded when it is first asked for; everyone who asks meanwhile waits for that one
// load. A lease keeps a model in memory. Loaded models fit a budget of bytes and a number: when
// another one needs room, idle ones that are not pinned go, least recently used first; when all are
// in use, the newcomer is refused. One thread loads and unloads. When a device is lost, all models
// on it leave it and are loaded anew; requests that have sent nothing wait meanwhile. Any thread
// may call any member.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/manager/load_share.h"
#include "engine/manager/served_model.h"

namespace skein {

struct ModelConfig {
  std::string id;
  std::string path;
  bool pinned = false;                       // never evicted to make room
  std::vector<SamplingValue> sampling = {};  // what an operator wants of it, before all else
};

enum class ModelState : uint8_t { kUnloaded, kLoading, kReady, kUnloading };

struct ModelStatus {
  ModelConfig config;
  ModelState state = ModelState::kUnloaded;
  Status failure;  // of the latest load, if it failed
  uint32_t leases = 0;
  std::shared_ptr<ServedModel> served;  // while kReady
  EngineSnapshot past;                  // counts of its earlier times in memory
  // What it computes on, or did; nullptr: the process's own processors.
  std::shared_ptr<const ComputeDevice> device;
  // From 0 to 1, while the loading thread is at it; nothing while it waits for that thread, or
  // where no loader reports.
  std::optional<float> loaded_share;
};

struct ManagerStats {
  uint64_t loads = 0;
  uint64_t failed_loads = 0;
  uint64_t evictions = 0;
  uint64_t direct_requests = 0;  // that batching did not serve, of all models ever loaded
  uint64_t used_bytes = 0;       // of the memory that all models share
  uint64_t limit_bytes = 0;
};

class SchedulerManager;

// Keeps a model loaded. Move-only; letting go of it makes the model evictable.
class ModelLease {
 public:
  ModelLease() = default;
  ModelLease(ModelLease&& other) noexcept { swap(other); }
  ModelLease& operator=(ModelLease&& other) noexcept {
    ModelLease(std::move(other)).swap(*this);
    return *this;
  }
  ~ModelLease();

  ServedModel* operator->() const { return served_.get(); }
  ServedModel& operator*() const { return *served_; }

 private:
  friend class SchedulerManager;
  ModelLease(SchedulerManager& manager, std::shared_ptr<ServedModel> served)
      : manager_(&manager), served_(std::move(served)) {}
  void swap(ModelLease& other) {
    std::swap(manager_, other.manager_);
    std::swap(served_, other.served_);
  }
  SchedulerManager* manager_ = nullptr;
  std::shared_ptr<ServedModel> served_;
};

class SchedulerManager {
 public:
  // Called by a loader once it knows what it needs and before it takes it: evicts until at least
  // `bytes` are free. The bytes that are free then; kResourceExhausted when the budget is smaller
  // than that, kUnavailable when what is loaded is in use.
  using MakeRoom = std::function<Result<uint64_t>(uint64_t bytes)>;
  using Loader =
      std::function<Result<ServedModelParts>(const ModelConfig& config, const MakeRoom& make_room)>;
  using Acquired = std::function<void(Result<ModelLease>)>;

  struct Options {
    uint64_t memory_bytes = 0;  // for weights, workspace and KV of all models together
    uint32_t max_models = 0;    // loaded at a time; 0: as many as fit
    // On the loading thread, around every load; what the first refuses is not loaded. May be empty.
    std::function<Status(const ModelConfig&)> before_load = {};
    std::function<void(const ModelConfig&)> after_load = {};
    // On the loading thread: a device was lost, and models on it could not be loaded anew. May be
    // empty.
    std::function<void(const Status& why)> on_device_gone = {};
    // The loader's ModelOptions::report tells it, and it outlives the manager. May be null.
    LoadShare* share = nullptr;
  };

  // `clock` must outlive the manager. Leases must be gone when it is destroyed.
  SchedulerManager(Options options, Loader loader, const Clock& clock);
  ~SchedulerManager();
  SchedulerManager(const SchedulerManager&) = delete;
  SchedulerManager& operator=(const SchedulerManager&) = delete;

  Status add(ModelConfig config);  // kAlreadyExists
  bool has(const std::string& id) const;

  // `done` is called once: at once when the model is loaded, later on the loading thread otherwise.
  // kNotFound for an id that was not added; kUnavailable while draining; else why the load failed.
  void acquire(const std::string& id, Acquired done);
  Result<ModelLease> acquire(const std::string& id);  // waits

  // kUnavailable while it is leased or loading; fine when it is not loaded.
  Status unload(const std::string& id);

  std::vector<ModelStatus> models() const;  // in the order of add()
  ManagerStats stats() const;

  // No more leases; what runs goes on.
  void drain();
  // drain(), then waits until nothing is live, but no longer than that, and stops everything. False
  // when a step hung and was left behind; the process should then end without destructors.
  bool shutdown(TimeUs timeout_us);

 private:
  friend class ModelLease;
  struct Entry {
    ModelConfig config;
    ModelState state = ModelState::kUnloaded;
    Status failure;
    std::shared_ptr<ServedModel> served;
    EngineSnapshot past;
    std::shared_ptr<const ComputeDevice> device;
    uint32_t leases = 0;
    uint64_t last_used = 0;
    std::vector<Acquired> waiters;
  };
  using Job = std::function<void()>;

  Entry* find(const std::string& id) const;
  void release(const std::shared_ptr<ServedModel>& served);
  void post(Job job);
  void serve_jobs();
  void load(const std::string& id);
  Result<std::shared_ptr<ServedModel>> try_load(const Entry& entry);
  Result<uint64_t> make_room(const Entry& newcomer, uint64_t bytes);
  bool unload_locked(Entry& entry, std::unique_lock<std::mutex>& lock);
  void recover();
  void drop(Entry& entry, std::shared_ptr<ServedModel> served, const Status& why);
  uint64_t used_bytes() const;
  uint32_t loaded_models() const;

  const Options options_;
  const Loader loader_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> entries_;
  const Entry* at_hand_ = nullptr;  // the one that is being loaded
  std::deque<Job> jobs_;
  uint64_t uses_ = 0;
  ManagerStats stats_;
  bool draining_ = false;
  bool stopping_ = false;
  bool left_behind_ = false;
  std::thread thread_;
};

}  // namespace skein
