// The threads that do the text work of requests (JSON, templates, tokenizers), so that I/O threads
// only move bytes.
//
//   if (!workers.post(priority, work, refuse)) refuse();
//
// Tasks start in the order of the scheduler's queue: by arrival + class x us_per_class, of equals
// the first. So a task waits for those ahead of it and for what arrives within (class gap x
// us_per_class) after it, never for more. Each class has places of its own in the queue: a flood of
// one class keeps nobody else out.
//
// Where whoever posts says whose task it is, the owners of a class take turns, and none has more
// than half of its places: a flood of one owner keeps another's task waiting for one of its own.
//
// A task that was queued is either run or dropped. One that throws, because memory is short, ends
// alone: what it holds goes, and with it a Responder that answers 500. Thread-safety: any thread
// may post; drop() and join() are for one thread.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "sched/types.h"

namespace skein::http {

class Workers {
 public:
  struct Options {
    size_t threads = 2;
    size_t queue_limit = 4096;                // tasks of one class that wait
    TimeUs us_per_class = 10 * kUsPerSecond;  // of waiting that make up for a class
    bool gives_way = false;                   // to the threads that compute, see base/resources.h
  };
  using Task = std::function<void()>;

  // `clock` outlives it.
  Workers(Options options, const Clock& clock);
  ~Workers();  // drops what waits and waits for what runs
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False, and neither is called, when the class or the owner has no place left, or after drop().
  // `dropped` is called instead of `run` when drop() finds it waiting. Without an owner (0) it is
  // one of those whose order is that of their arrival.
  bool post(Priority priority, Task run, Task dropped, uint64_t owner = 0);

  // Nothing is queued or begun from now on; what waits is told, on this thread. Idempotent.
  void drop();
  // After drop(): waits for the tasks that run. False when one has not ended in time; it must then
  // be joined again, or the process end without destructors.
  bool join(std::chrono::milliseconds timeout);

 private:
  struct Entry {
    TimeUs arrival_us = 0;
    uint64_t order = 0;
    Task run;
    Task dropped;
  };
  struct Line {
    uint64_t owner = 0;
    std::deque<Entry> entries;  // in order of arrival, never empty
  };
  struct Queue {            // of one class
    std::list<Line> lines;  // the first is next, and then goes behind the others
    size_t size = 0;        // of all lines
    const Entry& oldest() const;
  };

  void serve();
  Queue* next();  // mutex_ held; null: nothing waits
  static Entry take(Queue& queue);

  const Options options_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable ended_;
  std::array<Queue, kPriorities> queues_;
  uint64_t orders_ = 0;
  size_t serving_ = 0;  // threads that have not ended
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace skein::http
