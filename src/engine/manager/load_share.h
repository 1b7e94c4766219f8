// LoadShare: how much of the model at hand is loaded. The thread that loads tells, any may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace skein {

class LoadShare {
 public:
  void report(uint64_t done, uint64_t all) {
    share_ = all == 0 ? 1.0F : static_cast<float>(done) / static_cast<float>(all);
  }
  float share() const { return share_; }

 private:
  std::atomic<float> share_{0};
};

}  // namespace skein
