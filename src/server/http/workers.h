// The threads that do the text work of requests (JSON, templates, tokenizers), so that I/O threads
// only move bytes.
//
//   if (!workers.post(priority, owner, work, refuse)) refuse();
//
// Tasks start in the order of the scheduler's queue: by arrival + class x us_per_class, of equals
// the first. So a task waits for those ahead of it and for what arrives within (class gap x
// us_per_class) after it, never for more. Each class has places of its own in the queue: a flood of
// one class keeps nobody else out.
//
// The tasks of one owner (a key) stand in a line, and only the first of a line counts as waiting:
// the next one arrives, as it were, when that one is taken. So owners of a class take turns, and a
// flood of one owner, however old, keeps another's task waiting for one task of its own. While
// others wait, an owner may have half of the places of a class, and all but a few while it is
// alone. Tasks of nobody (no key) stand in no line.
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
#include <string>
#include <string_view>
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
  // `dropped` is called instead of `run` when drop() finds it waiting. An empty owner is nobody.
  bool post(Priority priority, std::string_view owner, Task run, Task dropped);

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
    std::string owner;  // empty: all tasks of nobody
    TimeUs since_us = 0;
    uint64_t order = 0;         // of those that wait since then
    std::deque<Entry> entries;  // in order of arrival, never empty
  };
  struct Queue {  // of one class
    std::list<Line> lines;
    size_t size = 0;  // of all lines
    std::list<Line>::iterator first();
  };

  void serve();
  bool has_place(const Queue& queue, const Line* own) const;
  // With mutex_ held. Null: nothing waits.
  Queue* next();
  Entry take(Queue& queue);

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
