// Builds GGUF bytes in memory, right ones and wrong ones: every length, count, type and offset can
// be given instead of computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace skein::testing {

class ByteWriter {
 public:
  template <class T>
  ByteWriter& number(T value) {
    const auto* at = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), at, at + sizeof value);
    return *this;
  }
  ByteWriter& raw(std::string_view text) {
    const auto* at = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), at, at + text.size());
    return *this;
  }
  ByteWriter& raw(std::span<const std::byte> part) {
    bytes_.insert(bytes_.end(), part.begin(), part.end());
    return *this;
  }
  ByteWriter& string(std::string_view text) { return number<uint64_t>(text.size()).raw(text); }
  ByteWriter& pad_to(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class GgufWriter {
 public:
  using Type = gguf::ValueType;

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // innermost first, as in the file
    uint32_t type = 0;           // F32
    std::optional<uint64_t> offset{};
    std::optional<uint32_t> rank{};
    std::optional<uint64_t> bytes{};  // of data written for it
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::optional<uint64_t> key_count, tensor_count;
  uint64_t cut = 0;  // bytes dropped from the end

  template <class T>
  GgufWriter& scalar(std::string_view key, Type type, T value) {
    begin(key, type).number(value);
    return *this;
  }
  GgufWriter& u32(std::string_view key, uint32_t value) {
    return scalar(key, Type::kUint32, value);
  }
  GgufWriter& string(std::string_view key, std::string_view value) {
    begin(key, Type::kString).string(value);
    return *this;
  }
  template <class T>
  GgufWriter& array(std::string_view key, Type type, const std::vector<T>& values) {
    begin(key, Type::kArray)
        .number(static_cast<uint32_t>(type))
        .template number<uint64_t>(values.size());
    for (const T value : values) values_.number(value);
    return *this;
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    begin(key, Type::kArray)
        .number(static_cast<uint32_t>(Type::kString))
        .number<uint64_t>(values.size());
    for (const std::string& value : values) values_.string(value);
    return *this;
  }
  // A key, a type, and then whatever the caller writes.
  ByteWriter& begin(std::string_view key, Type type) {
    ++keys_;
    return values_.string(key).number(static_cast<uint32_t>(type));
  }
  GgufWriter& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }

  std::vector<std::byte> build() {
    ByteWriter out;
    out.raw(magic).number(version);
    out.number<uint64_t>(tensor_count.value_or(tensors_.size()));
    out.number<uint64_t>(key_count.value_or(keys_)).raw(values_.bytes());
    ByteWriter data;
    for (const Tensor& tensor : tensors_) {
      data.pad_to(alignment);
      out.string(tensor.name).number<uint32_t>(tensor.rank.value_or(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) out.number(dim);
      out.number(tensor.type).number<uint64_t>(tensor.offset.value_or(data.bytes().size()));
      const uint64_t size = tensor.bytes.value_or(size_of(tensor));
      for (uint64_t i = 0; i < size; ++i) {
        data.number<uint8_t>(static_cast<uint8_t>(i * 7 + tensor.name.size()));
      }
    }
    if (!tensors_.empty()) out.pad_to(alignment).raw(data.bytes());
    out.bytes().resize(out.bytes().size() - cut);
    return out.bytes();
  }

 private:
  static uint64_t size_of(const Tensor& tensor) {
    const auto type = element_type_of_gguf_id(tensor.type);
    if (!type) return 0;
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    return elements / info(*type).block_elements * info(*type).block_bytes;
  }

  ByteWriter values_;
  uint64_t keys_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace skein::testing
