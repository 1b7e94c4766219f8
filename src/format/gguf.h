// GGUF, versions 2 and 3, little-endian: parsed from untrusted bytes, nothing copied.
//
// A GgufFile that was returned keeps these promises, whatever the bytes were:
//  1. every view lies inside the bytes that were given;
//  2. a tensor has 1 to 4 dimensions, none of them zero, rows of whole blocks, and a span that is
//     exactly as long as its type and shape say;
//  3. keys are unique, tensor names are unique, no two tensors share a byte.
// Parsing takes linear time (n log n for the names) and memory proportional to the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/gguf_metadata.h"
#include "tensor/tensor.h"

namespace skein::gguf {

// Limits, all far beyond real files (a vocabulary of 262,144 needs about 12 MB of header).
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
inline constexpr uint64_t kMaxKeyBytes = 65'535;  // the format's own limit
inline constexpr uint64_t kMaxTensorNameBytes = 256;
inline constexpr uint32_t kMaxTensorDims = 4;
inline constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;

struct GgufFile {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<NamedTensor> tensors;  // in the order of the file
};

// Errors name the key or tensor and both numbers; the caller knows and adds the file. `bytes` must
// outlive the result.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes);

}  // namespace skein::gguf
