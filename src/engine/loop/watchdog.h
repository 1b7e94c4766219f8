// Watchdog: a thread that looks at something at regular intervals, until it is destroyed.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/time.h"

namespace skein {

class Watchdog {
 public:
  // `look` is called on the watchdog's own thread. One look that throws is given up; the next one
  // comes. Throws std::system_error where no thread can be had.
  Watchdog(TimeUs interval_us, std::function<void()> look);
  ~Watchdog();  // waits for a look that is under way
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();

  const TimeUs interval_us_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace skein
