// The key-value pairs of a GGUF file.
//
//   SKEIN_ASSIGN(const uint32_t layers, metadata.get<uint32_t>("llama.block_count"));
//   SKEIN_ASSIGN(const float theta, metadata.get_or<float>("llama.rope.freq_base", 10000.0F));
//   SKEIN_ASSIGN(const gguf::StringArray tokens,
//   metadata.get<gguf::StringArray>("tokenizer.ggml.tokens"));
//
// Everything that is returned is a view of the parsed bytes, which must outlive it. Immutable once
// parsed, so any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace skein::gguf {

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string_view name_of(ValueType type);

// Bytes of one element; 0 for strings, arrays and anything that is no type.
size_t fixed_size(ValueType type);

// An array of strings: the views are one allocation for the whole array, the text is the file's.
using StringArray = std::span<const std::string_view>;

// An array of numbers where the file has them, which may be at any alignment. T is int64_t (holds
// every integer type and bool) or double (holds both float types).
template <class T>
class NumberArray {
 public:
  NumberArray() = default;
  NumberArray(ValueType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}

  size_t size() const { return bytes_.size() / fixed_size(type_); }
  bool empty() const { return bytes_.empty(); }
  T operator[](size_t i) const;

  // Copies and converts; for int64_t to a narrower type the caller knows that the values fit.
  template <class As>
  std::vector<As> to_vector() const {
    std::vector<As> out(size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<As>((*this)[i]);
    return out;
  }

 private:
  ValueType type_ = ValueType::kUint8;
  std::span<const std::byte> bytes_;
};
template <>
int64_t NumberArray<int64_t>::operator[](size_t i) const;
template <>
double NumberArray<double>::operator[](size_t i) const;
using IntArray = NumberArray<int64_t>;
using FloatArray = NumberArray<double>;

struct Value {
  std::string_view key;
  ValueType type = ValueType::kUint8;  // of the value, or of the elements of an array
  bool is_array = false;
  uint64_t count = 1;                     // elements of an array
  std::span<const std::byte> bytes;       // numbers and bools, as in the file
  std::vector<std::string_view> strings;  // strings
};

class Metadata {
 public:
  // The values sorted by key. `values` must be sorted and without duplicates.
  explicit Metadata(std::vector<Value> values) : values_(std::move(values)) {}
  Metadata() = default;

  std::span<const Value> values() const { return values_; }
  const Value* find(std::string_view key) const;  // nullptr when there is none
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // T is bool, int32_t, uint32_t, int64_t, uint64_t, float, double, std::string_view, StringArray,
  // IntArray or FloatArray. Integers of every width are taken when the value fits T; both float
  // types are taken for both. kNotFound without the key, kInvalidArgument when it holds something
  // else.
  template <class T>
  Result<T> get(std::string_view key) const;

  // `fallback` without the key; a key of the wrong type is still an error.
  template <class T>
  Result<T> get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : Result<T>(std::move(fallback));
  }

 private:
  std::vector<Value> values_;
};

}  // namespace skein::gguf
