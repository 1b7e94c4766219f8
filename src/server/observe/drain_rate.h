// DrainRate: how fast requests end, by the latest ones and the time each was worked on. It says
// after how many seconds a client that was refused should ask again. Any thread may call any
// member.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/time.h"

namespace skein {

class DrainRate {
 public:
  void note(TimeUs now, TimeUs served_us) {
    const std::lock_guard lock(mutex_);
    ends_.push_back({now, served_us});
    if (ends_.size() > kKept) ends_.pop_front();
  }

  uint64_t seconds_for(uint32_t waiting, TimeUs now) const {
    const std::lock_guard lock(mutex_);
    const auto first = std::find_if(ends_.begin(), ends_.end(),
                                    [now](const End& end) { return now - end.at < kWindowUs; });
    if (first == ends_.end()) return kUnmeasuredS;
    // From when the first of them began: a single end says how long one takes.
    const TimeUs span = std::max<TimeUs>(now - first->at + first->served_us, 1);
    const auto ended = static_cast<double>(ends_.end() - first);
    const double wait_s =
        static_cast<double>(waiting) * static_cast<double>(span) / kUsPerSecond / ended;
    return static_cast<uint64_t>(std::clamp(std::ceil(wait_s), 1.0, 60.0));
  }

 private:
  static constexpr size_t kKept = 128;
  static constexpr TimeUs kWindowUs = 60 * kUsPerSecond;
  static constexpr uint64_t kUnmeasuredS = 5;
  struct End {
    TimeUs at;
    TimeUs served_us;
  };
  mutable std::mutex mutex_;
  std::deque<End> ends_;
};

}  // namespace skein
