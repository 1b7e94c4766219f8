// Where time comes from. Only the engine and the apps hold a Clock; everything below them is told
// the time. Both kinds may be asked by any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "base/time.h"

namespace skein {

class Clock {
 public:
  virtual ~Clock() = default;
  // Microseconds since some fixed moment; never goes back, whatever the wall clock does.
  virtual TimeUs now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimeUs now() const override {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  }
};

// Stands still until it is moved: for tests and replays.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimeUs start = 0) : now_(start) {}
  TimeUs now() const override { return now_.load(std::memory_order_relaxed); }
  void advance(TimeUs by_us) { now_.fetch_add(by_us, std::memory_order_relaxed); }

 private:
  std::atomic<TimeUs> now_;
};

}  // namespace skein
