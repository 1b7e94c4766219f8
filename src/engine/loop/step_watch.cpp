#include "engine/loop/step_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "base/log.h"

namespace skein {
namespace {

// A step that runs for so long keeps the loop from looking at deadlines itself.
constexpr TimeUs kSlowStepUs = 250 * kUsPerMs;

}  // namespace

Watchdog::Watchdog(TimeUs interval_us, std::function<void()> look)
    : interval_us_(interval_us), look_(std::move(look)), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  const std::chrono::microseconds interval(interval_us_);
  while (!changed_.wait_for(lock, interval, [this] { return ends_; })) {
    lock.unlock();
    try {
      look_();
    } catch (const std::exception&) {
      // Out of memory, most likely: a log line would need some, too. It looks again.
    }
    lock.lock();
  }
}

TimeUs watch_interval_us(TimeUs step_timeout_us) {
  return std::clamp<TimeUs>(step_timeout_us / 8, kUsPerMs, kSlowStepUs);
}

void StepWatch::add(RequestId id, std::shared_ptr<TokenStream> stream, TimeUs deadline) {
  const std::lock_guard lock(watched_mutex_);
  watched_.emplace(id, Watched{std::move(stream), deadline});
}

void StepWatch::remove(RequestId id) {
  const std::lock_guard lock(watched_mutex_);
  watched_.erase(id);
}

void StepWatch::clear() {
  const std::lock_guard lock(watched_mutex_);
  watched_.clear();
}

void StepWatch::end_all(const char* why) noexcept {
  WatchedMap live;
  {
    const std::lock_guard lock(watched_mutex_);
    live.swap(watched_);
  }
  for (const auto& entry : live) {
    try {
      GenerationEnd end;
      end.status = {Code::kInternal, why};
      entry.second.stream->end(std::move(end));
    } catch (const std::exception&) {
      // The next one may fare better.
    }
  }
}

void StepWatch::set_step_start(TimeUs started) {
  const std::lock_guard lock(step_mutex_);
  step_started_ = started;
}

void StepWatch::look(TimeUs now) {
  const std::lock_guard lock(step_mutex_);
  const TimeUs patience_us = std::min(kSlowStepUs, step_timeout_us_);
  if (step_started_ == kNever || now - step_started_ < patience_us) return;
  const bool hangs = now - step_started_ >= step_timeout_us_;
  std::vector<Watched> ends;
  {
    const std::lock_guard watched_lock(watched_mutex_);
    if (hangs && !hung_.exchange(true)) {
      log_error("a step has not come back in {} ms; {} requests that run or wait end",
                (now - step_started_) / kUsPerMs, watched_.size());
    }
    for (const auto& [id, watched] : watched_) {
      if (hangs || watched.deadline <= now) ends.push_back(watched);
    }
  }
  for (const Watched& watched : ends) {
    GenerationEnd end;
    const bool own_deadline = watched.deadline <= now;
    end.reason = own_deadline ? FinishReason::kTimedOut : FinishReason::kError;
    if (!own_deadline) {
      end.status = deadline_exceeded("a step has not come back within the step timeout of {} ms",
                                     step_timeout_us_ / kUsPerMs);
    }
    watched.stream->end(std::move(end));
  }
}

}  // namespace skein
