// Ctrl-C as a flag instead of an end.
#pragma once

#include <atomic>
#include <csignal>

namespace skein::apps {

// While one lives, SIGINT sets pressed() and ends a blocking read; before and after it ends the
// process. One at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  const std::atomic<bool>& pressed() const;
  void clear();

 private:
  struct sigaction before_ = {};
};

}  // namespace skein::apps
