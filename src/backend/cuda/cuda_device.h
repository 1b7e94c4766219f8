// Which CUDA device a name means, whether it can be used, and what becomes of one that is lost.
//
// A kernel that faults, or memory that does, takes the process's whole context on the device with
// it: every backend there, whichever of them asked for it. Nothing of the context can be used
// again. When all who were in it are gone the process asks for another one. Whether it gets one is
// the driver's decision: after a fault on an H200 that of CUDA 13.0 said no, and the device was
// there for the next process alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "backend/compute_device.h"
#include "base/status.h"

namespace skein::cuda {

// The process's context on a device: there is one, since the driver has one.
class DeviceContext final : public ComputeDevice {
 public:
  DeviceContext(int number, std::string name);

  const std::string& id() const override { return id_; }
  const std::string& name() const override { return name_; }
  Memory memory() const override;
  bool is_lost() const override { return lost_; }
  uint64_t times_lost() const override { return times_lost_; }

  // A backend comes, and makes the context anew where it was lost. kUnavailable where others stay
  // in the one that was, or where the device does not come back.
  Status enter();
  void leave();
  void set_lost();

 private:
  Status renew(std::unique_lock<std::mutex>& lock);
  int make_context() const;  // a cudaError_t

  const int number_;
  const std::string id_, name_;
  std::atomic<bool> lost_{false};
  std::atomic<uint64_t> times_lost_{0};
  mutable std::mutex mutex_;  // held while the context is made anew, or asked
  std::condition_variable left_;
  mutable Memory memory_;  // as it was last seen
  uint32_t backends_ = 0;  // in the context
  bool was_entered_ = false;
};

// A backend's place in the context. It is given back last, after all that the backend had there.
class DeviceSeat {
 public:
  static Result<DeviceSeat> take(std::shared_ptr<DeviceContext> context);
  DeviceSeat(DeviceSeat&&) = default;
  DeviceSeat& operator=(DeviceSeat&&) = delete;
  ~DeviceSeat() {
    if (context_) context_->leave();
  }

  const std::shared_ptr<DeviceContext>& context() const { return context_; }

 private:
  explicit DeviceSeat(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {}
  std::shared_ptr<DeviceContext> context_;
};

struct Device {
  int number = 0;
  std::string name;  // of the backend: "cuda/sm_90"
  uint32_t processors = 0;
  bool is_hopper = false;  // its tensor cores are those of f16_products.h
  std::shared_ptr<DeviceContext> context;
};

// `device` is "cuda", which is the first, or "cuda:1". kInvalidArgument for a number that is none,
// kUnimplemented with the reason where there is no driver, no such device, or one that is too old.
Result<Device> find_device(std::string_view device);

// The context of the thread's current device was lost.
void set_current_device_lost();

}  // namespace skein::cuda
