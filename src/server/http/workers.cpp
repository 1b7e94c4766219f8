#include "server/http/workers.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/resources.h"

namespace skein::http {
namespace {

// Places that an owner leaves to others while it is alone.
constexpr size_t kSpared = 32;

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

// `own`: the line of who asks, null where it has none.
bool Workers::has_place(const Queue& queue, const Line* own) const {
  const size_t limit = options_.queue_limit;
  if (queue.size >= limit) return false;
  if (own == nullptr || own->owner.empty()) return true;
  const bool is_alone = queue.lines.size() == 1;
  return own->entries.size() < (is_alone ? limit - std::min(kSpared, limit / 8) : (limit + 1) / 2);
}

bool Workers::post(Priority priority, std::string_view owner, Task run, Task dropped) {
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[static_cast<size_t>(priority)];
    auto line = std::find_if(queue.lines.begin(), queue.lines.end(),
                             [&](const Line& one) { return one.owner == owner; });
    const bool is_new = line == queue.lines.end();
    if (stopping_ || !has_place(queue, is_new ? nullptr : &*line)) return false;
    const TimeUs now = clock_.now();
    if (is_new) {
      line = queue.lines.insert(line, Line{std::string(owner), now, orders_, {}});
    }
    try {
      line->entries.push_back({now, orders_, std::move(run), std::move(dropped)});
    } catch (...) {  // memory is short
      if (is_new) queue.lines.erase(line);
      throw;
    }
    ++orders_;
    ++queue.size;
  }
  posted_.notify_one();
  return true;
}

std::list<Workers::Line>::iterator Workers::Queue::first() {
  return std::min_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::pair(a.since_us, a.order) < std::pair(b.since_us, b.order);
  });
}

Workers::Queue* Workers::next() {
  Queue* best = nullptr;
  std::pair<TimeUs, uint64_t> best_key;
  for (size_t c = 0; c < queues_.size(); ++c) {
    if (queues_[c].size == 0) continue;
    const Line& line = *queues_[c].first();
    const std::pair key(line.since_us + static_cast<TimeUs>(c) * options_.us_per_class, line.order);
    if (best != nullptr && !(key < best_key)) continue;
    best = &queues_[c];
    best_key = key;
  }
  return best;
}

Workers::Entry Workers::take(Queue& queue) {
  const auto line = queue.first();
  Entry entry = std::move(line->entries.front());
  line->entries.pop_front();
  --queue.size;
  if (line->entries.empty()) {
    queue.lines.erase(line);
  } else if (line->owner.empty()) {
    line->since_us = line->entries.front().arrival_us;
    line->order = line->entries.front().order;
  } else {
    line->since_us = clock_.now();
    line->order = orders_++;
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
