// StepWatch: ends requests that a step keeps waiting.
//
// Between two steps a loop looks at deadlines itself. While a step keeps it from that, a watchdog
// calls look(): it ends every request whose deadline has passed and, once the step is over its
// time, everything that is live. The service then counts as hung until the loop says otherwise.
// What such a step brings later finds its streams ended, and nothing follows an end.
//
// Any thread may call any member.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/loop/token_stream.h"

namespace skein {

// Watchdog: a thread that looks at something at regular intervals, until it is destroyed.
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

class StepWatch {
 public:
  explicit StepWatch(TimeUs step_timeout_us) : step_timeout_us_(step_timeout_us) {}

  // Live requests.
  void add(RequestId id, std::shared_ptr<TokenStream> stream, TimeUs deadline);
  void remove(RequestId id);
  void clear();
  // Ends everything that is live, as far as memory allows, and forgets it.
  void end_all(const char* why) noexcept;

  // When the oldest step under way began; kNever: there is none.
  void set_step_start(TimeUs started);
  void look(TimeUs now);

  bool hung() const { return hung_; }
  void set_recovered() { hung_ = false; }

 private:
  struct Watched {
    std::shared_ptr<TokenStream> stream;
    TimeUs deadline = kNever;
  };
  using WatchedMap = std::unordered_map<RequestId, Watched>;

  const TimeUs step_timeout_us_;
  std::atomic<bool> hung_{false};
  std::mutex step_mutex_;
  TimeUs step_started_ = kNever;
  std::mutex watched_mutex_;  // taken after step_mutex_ where both are
  WatchedMap watched_;
};

// How often to look for steps over `step_timeout_us`: one is found within an eighth of that, and a
// deadline that passes while a step runs within a quarter of a second.
TimeUs watch_interval_us(TimeUs step_timeout_us);

}  // namespace skein
