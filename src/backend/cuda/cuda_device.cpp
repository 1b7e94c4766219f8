#include "backend/cuda/cuda_device.h"

#include <charconv>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace skein::cuda {
namespace {

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

Result<Device> find_device(std::string_view device) {
  SKEIN_ASSIGN(const int number, number_of(device));
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
  return Device{number, fmt::format("cuda/sm_{}", architecture),
                static_cast<uint32_t>(properties.multiProcessorCount), architecture == kHopper};
}

}  // namespace skein::cuda
