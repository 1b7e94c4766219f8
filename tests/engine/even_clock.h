// A clock by which every step takes the same time, however many rows it has and whatever else the
// machine does: so a guess always pays.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace skein::testing {

class EvenClock final : public Clock {
 public:
  TimeUs now() const override { return now_ += kStepUs; }

 private:
  static constexpr TimeUs kStepUs = 100;
  mutable std::atomic<TimeUs> now_{0};
};

}  // namespace skein::testing
