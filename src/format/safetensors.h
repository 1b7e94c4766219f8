// safetensors: a 64-bit header length, a JSON header, the tensors' bytes.
//
// Tensors that were returned keep these promises, whatever the bytes were: names are unique, every
// span lies inside the bytes that were given and is exactly as long as type and shape say, and the
// spans cover the data without a hole or an overlap, as the format demands. Dimensions may be zero.
// Linear time (n log n for the names).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/tensor.h"

namespace skein {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxSafetensorsTensors = size_t{1} << 20;
inline constexpr size_t kMaxSafetensorsNameBytes = 1024;

// Sorted by name. Errors name the tensor and both numbers; the caller knows and adds the file.
// `bytes` must outlive the result.
Result<std::vector<NamedTensor>> parse_safetensors(std::span<const std::byte> bytes);

}  // namespace skein
