// ComputeDevice: a device that backends compute on, as its operator sees it, and what is thrown
// when it is gone.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace skein {

// The device cannot be used any more: not by this backend, and not by another one over the same
// device. What they made has to go, and so have they; then another one may be had.
class BackendLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Lives as long as anybody asks. Any thread may, also while backends over the device are made and
// go.
class ComputeDevice {
 public:
  struct Memory {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;  // for all processes that use the device
  };

  ComputeDevice() = default;
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;
  virtual ~ComputeDevice() = default;

  virtual const std::string& id() const = 0;    // "cuda:0"
  virtual const std::string& name() const = 0;  // "NVIDIA H200"
  // As it is now; while the device is lost, as it was before.
  virtual Memory memory() const = 0;
  // From the moment when some backend found it out to the one when another backend was made.
  virtual bool is_lost() const = 0;
  virtual uint64_t times_lost() const = 0;
};

}  // namespace skein
