#include "backend/cuda/cuda_device.h"

#include <charconv>
#include <chrono>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <map>

#include "base/log.h"

namespace skein::cuda {
namespace {

// The devices that were found, with the process's contexts on them. What is the driver's for the
// whole process cannot be anybody's own.
struct FoundDevices {
  std::mutex mutex;
  std::map<int, Device> by_number;
};
FoundDevices& found_devices() {
  static FoundDevices found;
  return found;
}

constexpr int kHopper = 90;
constexpr int kOldest = 75;  // the kernels are there as PTX of compute_75 (CMakeLists.txt)

Result<int> number_of(std::string_view device) {
  const size_t colon = device.find(':');
  if (colon == std::string_view::npos) return 0;
  const std::string_view digits = device.substr(colon + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    return invalid_argument("'{}' is no device, it would be cuda or cuda:0", device);
  }
  return number;
}

Result<int> count_devices() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return unimplemented("CUDA: this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded)");
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return unimplemented("CUDA: the driver is for CUDA {}.{} at most, this skein needs {}.{}",
                         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                         CUDART_VERSION % 1000 / 10);
  }
  if (error != cudaSuccess) return unimplemented("CUDA: {}", cudaGetErrorString(error));
  return count;
}

}  // namespace

DeviceContext::DeviceContext(int number, std::string name)
    : number_(number), id_(fmt::format("cuda:{}", number)), name_(std::move(name)) {}

ComputeDevice::Memory DeviceContext::memory() const {
  const std::lock_guard lock(mutex_);
  if (lost_ || !was_entered_) return memory_;  // asking would make a context
  size_t left = 0, total = 0;
  if (cudaSetDevice(number_) == cudaSuccess && cudaMemGetInfo(&left, &total) == cudaSuccess) {
    memory_ = {total, left};
  }
  return memory_;
}

Status DeviceContext::enter() {
  std::unique_lock lock(mutex_);
  if (lost_) SKEIN_TRY(renew(lock));
  ++backends_;
  was_entered_ = true;
  return ok_status();
}

Status DeviceContext::renew(std::unique_lock<std::mutex>& lock) {
  // One may just be going.
  constexpr std::chrono::seconds kPatience{2};
  if (!left_.wait_for(lock, kPatience, [this] { return backends_ == 0; })) {
    return unavailable("CUDA: device {} was lost, and {} backends still have memory there", number_,
                       backends_);
  }
  // What the driver still has to clear away takes it a while.
  constexpr int kTries = 16;
  constexpr std::chrono::milliseconds kBetween{250};
  auto error = cudaErrorUnknown;
  for (int i = 0; lost_ && i < kTries; ++i) {
    if (i > 0) left_.wait_for(lock, kBetween, [this] { return !lost_; });
    error = static_cast<cudaError_t>(make_context());
    if (error != cudaSuccess) continue;
    lost_ = false;
    log_warning("CUDA: device {} was lost and is there again", number_);
  }
  if (!lost_) return ok_status();
  return unavailable(
      "CUDA: device {} was lost and does not come back to this process ({}); it has to be started "
      "anew",
      number_, cudaGetErrorString(error));
}

int DeviceContext::make_context() const {
  static_cast<void>(cudaSetDevice(number_));
  static_cast<void>(cudaDeviceReset());  // both say again what went wrong
  static_cast<void>(cudaGetLastError());
  cudaError_t error = cudaSetDevice(number_);
  if (error == cudaSuccess) error = cudaFree(nullptr);  // makes one
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  static_cast<void>(cudaGetLastError());
  return error;
}

void DeviceContext::leave() {
  const std::lock_guard lock(mutex_);
  --backends_;
  left_.notify_all();
}

void DeviceContext::set_lost() {
  if (!lost_.exchange(true)) ++times_lost_;
}

Result<DeviceSeat> DeviceSeat::take(std::shared_ptr<DeviceContext> context) {
  SKEIN_TRY(context->enter());
  return DeviceSeat(std::move(context));
}

void set_current_device_lost() {
  int number = 0;
  static_cast<void>(cudaGetDevice(&number));
  FoundDevices& found = found_devices();
  const std::lock_guard lock(found.mutex);
  const auto it = found.by_number.find(number);
  if (it != found.by_number.end()) it->second.context->set_lost();
}

Result<Device> find_device(std::string_view device) {
  SKEIN_ASSIGN(const int number, number_of(device));
  FoundDevices& found = found_devices();
  const std::lock_guard lock(found.mutex);
  // Nothing can be asked of one that is lost.
  const auto known = found.by_number.find(number);
  if (known != found.by_number.end()) return known->second;
  SKEIN_ASSIGN(const int count, count_devices());
  if (number >= count) {
    return unimplemented("CUDA: there is no device {}, this machine has {}", number, count);
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, number);
      error != cudaSuccess) {
    return unimplemented("CUDA: device {}: {}", number, cudaGetErrorString(error));
  }
  const int architecture = 10 * properties.major + properties.minor;
  if (architecture < kOldest) {
    return unimplemented("CUDA: device {}, {}, is of compute capability {}.{}, {}.{} is needed",
                         number, properties.name, properties.major, properties.minor, kOldest / 10,
                         kOldest % 10);
  }
  return found.by_number[number] = {number, fmt::format("cuda/sm_{}", architecture),
                                    static_cast<uint32_t>(properties.multiProcessorCount),
                                    architecture == kHopper,
                                    std::make_shared<DeviceContext>(number, properties.name)};
}

}  // namespace skein::cuda
