// BusyDevice: kernels of random sizes and lengths on a device, beside whatever else it does, as
// long as one of these lives. What runs there begins and ends in orders that it has never seen
// alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace skein::testing {

class BusyDevice {
 public:
  explicit BusyDevice(uint64_t seed) : thread_([this, seed] { keep_busy(seed); }) {}
  BusyDevice(const BusyDevice&) = delete;
  BusyDevice& operator=(const BusyDevice&) = delete;
  ~BusyDevice() {
    stops_ = true;
    thread_.join();
  }

  // Kernels that have run.
  uint64_t count() const { return count_; }

 private:
  void keep_busy(uint64_t seed);

  std::atomic<bool> stops_ = false;
  std::atomic<uint64_t> count_ = 0;
  std::thread thread_;
};

}  // namespace skein::testing
