// Which CUDA device a name means, and whether it can be used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace skein::cuda {

struct Device {
  int number = 0;
  std::string name;  // of the backend: "cuda/sm_90"
  uint32_t processors = 0;
  bool is_hopper = false;  // its tensor cores are those of f16_products.h
};

// `device` is "cuda", which is the first, or "cuda:1". kInvalidArgument for a number that is none,
// kUnimplemented with the reason where there is no driver, no such device, or one that is too old.
Result<Device> find_device(std::string_view device);

}  // namespace skein::cuda
