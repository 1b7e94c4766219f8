// The process's compute workers.
//
//   pool.run(rows, [&](size_t row) { multiply(row); });
//
// Invariants: (1) every task of a run is done exactly once, by a worker or by the calling thread,
// and all of them before run() returns; (2) what the caller wrote before run() is visible to the
// tasks, what they wrote is visible after it; (3) one run is in progress at a time, and callers on
// several threads get their turns in the order in which they came; (4) a run allocates nothing.
// Which thread does which task is not determined, so tasks must not care. Tasks do not throw and do
// not run anything on a pool themselves: nesting is a broken invariant.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace skein {

class ComputePool {
 public:
  // `threads` counts the calling thread: 1 has no workers, n has n - 1. At least 1.
  explicit ComputePool(size_t threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // A task calls this while it waits for another one; if that takes long, `briefly` is false.
  static void spin(bool briefly);

  // fn(task) for every task in [0, tasks). Thread-safe.
  template <class Fn>
  void run(size_t tasks, const Fn& fn) {
    run(
        tasks, [](const void* context, size_t task) { (*static_cast<const Fn*>(context))(task); },
        &fn);
  }

 private:
  using Task = void (*)(const void* context, size_t task);

  void run(size_t tasks, Task task, const void* context);
  void work();   // takes tasks of the current run until none is left
  void serve();  // a worker's life
  void stop();
  void take_turn();
  void end_turn();

  alignas(64) std::atomic<uint64_t> run_{0};      // counts runs; a change starts the workers
  alignas(64) std::atomic<uint32_t> working_{0};  // workers that have not finished the run
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<size_t> next_task_{0};
  // The current run: written by the caller whose turn it is while no worker looks.
  size_t tasks_ = 0;
  Task task_ = nullptr;
  const void* context_ = nullptr;

  // Whose turn it is.
  alignas(64) std::atomic<uint64_t> next_ticket_{0};
  std::atomic<uint64_t> serving_{0};

  std::vector<std::thread> workers_;
};

}  // namespace skein
