#include "server/http/workers.h"

#include <algorithm>
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

bool Workers::post(Priority priority, Task run, Task dropped, uint64_t owner) {
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[static_cast<size_t>(priority)];
    if (stopping_ || queue.size >= options_.queue_limit) return false;
    auto line = std::find_if(queue.lines.begin(), queue.lines.end(),
                             [&](const Line& one) { return one.owner == owner; });
    const bool is_new = line == queue.lines.end();
    const size_t share = (options_.queue_limit + 1) / 2;
    if (!is_new && owner != 0 && line->entries.size() >= share) return false;
    if (is_new) line = queue.lines.insert(queue.lines.end(), Line{owner, {}});
    try {
      line->entries.push_back({clock_.now(), orders_++, std::move(run), std::move(dropped)});
    } catch (...) {  // memory is short
      if (is_new) queue.lines.erase(line);
      throw;
    }
    ++queue.size;
  }
  posted_.notify_one();
  return true;
}

const Workers::Entry& Workers::Queue::oldest() const {
  const auto first = std::min_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.entries.front().order < b.entries.front().order;
  });
  return first->entries.front();
}

Workers::Queue* Workers::next() {
  Queue* best = nullptr;
  TimeUs best_key = 0;
  uint64_t best_order = 0;
  for (size_t c = 0; c < queues_.size(); ++c) {
    if (queues_[c].size == 0) continue;
    const Entry& head = queues_[c].oldest();
    const TimeUs key = head.arrival_us + static_cast<TimeUs>(c) * options_.us_per_class;
    const bool better =
        best == nullptr || key < best_key || (key == best_key && head.order < best_order);
    if (!better) continue;
    best = &queues_[c];
    best_key = key;
    best_order = head.order;
  }
  return best;
}

Workers::Entry Workers::take(Queue& queue) {
  Line& line = queue.lines.front();
  Entry entry = std::move(line.entries.front());
  line.entries.pop_front();
  --queue.size;
  if (line.entries.empty()) {
    queue.lines.pop_front();
  } else {
    queue.lines.splice(queue.lines.end(), queue.lines, queue.lines.begin());
  }
  return entry;
}

void Workers::serve() {
  if (options_.gives_way) give_way();
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || next() != nullptr; });
    if (stopping_) break;
    Entry entry = take(*next());
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
    for (const Line& line : queue.lines) {
      for (const Entry& entry : line.entries) call(entry.dropped);
    }
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
