// The line that a terminal shows while models load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace skein::apps {

// How much of the model at hand is loaded: told by the thread that loads, read by any.
class LoadShare {
 public:
  void report(uint64_t done, uint64_t all) {
    share_ = all == 0 ? 1.0F : static_cast<float>(done) / static_cast<float>(all);
  }
  float share() const { return share_; }

 private:
  std::atomic<float> share_{0};
};

// On stderr, redrawn in place; nothing where stderr is no terminal, nor before a second has passed.
class LoadProgress {
 public:
  LoadProgress(std::vector<std::string> models, const LoadShare& share);
  ~LoadProgress() { clear(); }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  void done(size_t model);
  void draw();   // unless it was just drawn
  void clear();  // before something else is written

 private:
  using Time = std::chrono::steady_clock::time_point;

  const bool shown_;
  const std::vector<std::string> models_;
  const LoadShare& share_;
  std::vector<bool> loaded_;
  const Time started_ = std::chrono::steady_clock::now();
  Time last_drawn_ = started_;
  bool drawn_ = false;
};

}  // namespace skein::apps
