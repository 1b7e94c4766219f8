#include "base/compute_pool.h"

#include "base/check.h"
#include "base/patience.h"

namespace skein {
namespace {

thread_local bool in_task = false;

// Ops follow each other within microseconds, so it pays to look a while before sleeping.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Until `value` is no longer `old`.
template <class T>
void await_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

void ComputePool::spin(bool briefly) {
  briefly ? pause() : std::this_thread::yield();
}

ComputePool::ComputePool(size_t threads) {
  SKEIN_CHECK(threads >= 1, "a pool of {} threads", threads);
  workers_.reserve(threads - 1);
  try {
    for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  } catch (...) {  // the system has no more threads: those that run end first
    stop();
    throw;
  }
}

ComputePool::~ComputePool() {
  stop();
}

void ComputePool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ComputePool::serve() {
  const PatientScope patient;  // a task has nobody to tell
  uint64_t seen = 0;
  while (true) {
    await_change(run_, seen);
    seen = run_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    work();
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

void ComputePool::work() {
  in_task = true;
  while (true) {
    const size_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) break;
    task_(context_, task);
  }
  in_task = false;
}

void ComputePool::take_turn() {
  const uint64_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
  while (true) {
    const uint64_t serving = serving_.load(std::memory_order_acquire);
    if (serving == ticket) return;
    serving_.wait(serving, std::memory_order_acquire);
  }
}

void ComputePool::end_turn() {
  serving_.fetch_add(1, std::memory_order_release);
  serving_.notify_all();
}

void ComputePool::run(size_t tasks, Task task, const void* context) {
  SKEIN_CHECK(!in_task, "a task of the compute pool runs {} more", tasks);
  if (tasks == 0) return;
  take_turn();
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  const bool shared = tasks > 1 && !workers_.empty();
  if (shared) {
    working_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    run_.fetch_add(1, std::memory_order_release);
    run_.notify_all();
  }
  work();
  while (shared) {
    const uint32_t left = working_.load(std::memory_order_acquire);
    if (left == 0) break;
    await_change(working_, left);
  }
  end_turn();
}

}  // namespace skein
