#include "engine/loop/watchdog.h"

#include <chrono>
#include <exception>
#include <utility>

namespace skein {

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

}  // namespace skein
