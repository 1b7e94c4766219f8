#include "server/http/workers.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/resources.h"

namespace skein::http {
namespace {

// The top of a thread: memory is short, and this task alone fails.
void call(const Workers::Task& task) {
  try {
    task();
  } catch (const std::exception& error) {
    log_error("a worker goes on after: {}", error.what());
  }
}

}  // namespace

Workers::Workers(Options options, const Clock& clock) : options_(options), clock_(clock) {
  threads_.reserve(options_.threads);
  serving_ = options_.threads;
  try {
    for (size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { serve(); });
  } catch (...) {  // the system has no more threads: those that run end first
    drop();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

Workers::~Workers() {
  drop();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::post(Priority priority, Task run, Task dropped) {
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[static_cast<size_t>(priority)];
    if (stopping_ || queue.size() >= options_.queue_limit) return false;
    queue.push_back({clock_.now(), orders_++, std::move(run), std::move(dropped)});
  }
  posted_.notify_one();
  return true;
}

Workers::Queue* Workers::next() {
  Queue* best = nullptr;
  TimeUs best_key = 0;
  for (size_t c = 0; c < queues_.size(); ++c) {
    if (queues_[c].empty()) continue;
    const Entry& head = queues_[c].front();
    const TimeUs key = head.arrival_us + static_cast<TimeUs>(c) * options_.us_per_class;
    const bool better =
        best == nullptr || key < best_key || (key == best_key && head.order < best->front().order);
    if (!better) continue;
    best = &queues_[c];
    best_key = key;
  }
  return best;
}

void Workers::serve() {
  if (options_.gives_way) give_way();
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || next() != nullptr; });
    if (stopping_) break;
    Queue& queue = *next();
    Entry entry = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    call(entry.run);
    entry = {};  // what it holds goes before the lock is taken
    lock.lock();
  }
  --serving_;
  ended_.notify_all();
}

void Workers::drop() {
  std::array<Queue, kPriorities> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(queues_);
  }
  posted_.notify_all();
  for (const Queue& queue : dropped) {
    for (const Entry& entry : queue) call(entry.dropped);
  }
}

bool Workers::join(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, timeout, [this] { return serving_ == 0; })) return false;
  lock.unlock();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return true;
}

}  // namespace skein::http
