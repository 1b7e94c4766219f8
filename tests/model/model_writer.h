// Small models with data, as a folder or as a GGUF file.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "tensor/element_type.h"

namespace skein::testing {

struct TensorData {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;  // outermost first
  std::vector<std::byte> bytes;
};

inline std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto view = std::as_bytes(std::span(values));
  return {view.begin(), view.end()};
}

inline uint64_t elements_of(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (const uint64_t dim : shape) count *= dim;
  return count;
}

// Numbers in [-1/2, 1/2) plus `offset`, the same in any language: those of stream `stream`.
inline std::vector<float> numbers(uint32_t stream, uint64_t count, float offset = 0) {
  std::vector<float> out;
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t x = (static_cast<uint32_t>(i) + stream * 100'003) * 2'654'435'761u;
    x ^= x >> 15;
    x *= 2'246'822'519u;
    x ^= x >> 13;
    out.push_back(static_cast<float>(x >> 16) / 65'536 - 0.5F + offset);
  }
  return out;
}

inline TensorData f32(std::string name, std::vector<uint64_t> shape, std::vector<float> values) {
  return {std::move(name), ElementType::kF32, std::move(shape), bytes_of(values)};
}

inline std::vector<std::byte> safetensors_of(const std::vector<TensorData>& tensors) {
  SafetensorsWriter writer;
  for (const TensorData& tensor : tensors) {
    writer.tensor(tensor.name, info(tensor.type).name, tensor.shape,
                  std::span<const std::byte>(tensor.bytes));
  }
  return writer.build();
}

// The bytes that GgufWriter makes up are replaced by the tensors' own.
inline std::vector<std::byte> gguf_of(GgufWriter writer, const std::vector<TensorData>& tensors) {
  std::vector<std::byte> data;
  for (const TensorData& tensor : tensors) {
    data.resize((data.size() + writer.alignment - 1) / writer.alignment * writer.alignment);
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    writer.tensor({.name = tensor.name,
                   .dims = {tensor.shape.rbegin(), tensor.shape.rend()},
                   .type = info(tensor.type).gguf_id});
  }
  std::vector<std::byte> file = writer.build();
  std::copy(data.begin(), data.end(), file.end() - static_cast<std::ptrdiff_t>(data.size()));
  return file;
}

}  // namespace skein::testing
