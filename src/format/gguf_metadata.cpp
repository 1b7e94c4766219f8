#include "format/gguf_metadata.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "format/quote.h"

namespace skein::gguf {
namespace {

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_float(ValueType type) {
  return type == ValueType::kFloat32 || type == ValueType::kFloat64;
}

bool is_integer(ValueType type) {
  return fixed_size(type) != 0 && !is_float(type) && type != ValueType::kBool;
}

int64_t integer_at(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kBool:
      return load<uint8_t>(at);
    case ValueType::kInt8:
      return load<int8_t>(at);
    case ValueType::kUint16:
      return load<uint16_t>(at);
    case ValueType::kInt16:
      return load<int16_t>(at);
    case ValueType::kUint32:
      return load<uint32_t>(at);
    case ValueType::kInt32:
      return load<int32_t>(at);
    case ValueType::kUint64:
    case ValueType::kInt64:
      return load<int64_t>(at);
    default:
      break;
  }
  SKEIN_CHECK(false, "{} is not an integer", name_of(type));
}

double float_at(ValueType type, const std::byte* at) {
  return type == ValueType::kFloat32 ? double{load<float>(at)} : load<double>(at);
}

std::string describe(const Value& value) {
  if (value.is_array) return fmt::format("an array of {} {}", value.count, name_of(value.type));
  const std::string_view type = name_of(value.type);
  return fmt::format("{} {}", type.starts_with('i') ? "an" : "a", type);
}

Status wrong_type(const Value& value, std::string_view wanted) {
  return invalid_argument("key {} holds {}, not {}", in_quotes(value.key), describe(value), wanted);
}

template <class T>
Result<T> integer(const Value& value) {
  if (value.is_array || !is_integer(value.type)) return wrong_type(value, "an integer");
  const int64_t number = integer_at(value.type, value.bytes.data());
  const auto unsigned_number = static_cast<uint64_t>(number);
  const bool is_unsigned = value.type == ValueType::kUint64;
  if (is_unsigned ? !std::in_range<T>(unsigned_number) : !std::in_range<T>(number)) {
    return out_of_range("key {} is {}, outside of {} to {}", in_quotes(value.key),
                        is_unsigned ? std::to_string(unsigned_number) : std::to_string(number),
                        std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  return static_cast<T>(number);
}

Result<IntArray> integers(const Value& value) {
  if (!value.is_array || !(is_integer(value.type) || value.type == ValueType::kBool)) {
    return wrong_type(value, "an array of integers");
  }
  const IntArray array(value.type, value.bytes);
  if (value.type == ValueType::kUint64) {
    for (size_t i = 0; i < array.size(); ++i) {
      if (array[i] < 0) {
        return out_of_range("key {}: element {} is {}, over 2^63 - 1", in_quotes(value.key), i,
                            static_cast<uint64_t>(array[i]));
      }
    }
  }
  return array;
}

}  // namespace

std::string_view name_of(ValueType type) {
  static constexpr std::string_view kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                "int32",  "float32", "bool",   "string", "array",
                                                "uint64", "int64",   "float64"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

size_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

template <>
int64_t NumberArray<int64_t>::operator[](size_t i) const {
  return integer_at(type_, bytes_.subspan(i * fixed_size(type_), fixed_size(type_)).data());
}

template <>
double NumberArray<double>::operator[](size_t i) const {
  return float_at(type_, bytes_.subspan(i * fixed_size(type_), fixed_size(type_)).data());
}

const Value* Metadata::find(std::string_view key) const {
  const auto it = std::lower_bound(values_.begin(), values_.end(), key,
                                   [](const Value& v, std::string_view k) { return v.key < k; });
  return it != values_.end() && it->key == key ? &*it : nullptr;
}

template <class T>
Result<T> Metadata::get(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return not_found("key {} is missing", in_quotes(key));
  if constexpr (std::is_same_v<T, bool>) {
    if (value->is_array || value->type != ValueType::kBool) return wrong_type(*value, "a bool");
    return integer_at(value->type, value->bytes.data()) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return integer<T>(*value);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (value->is_array || !is_float(value->type)) return wrong_type(*value, "a float");
    return static_cast<T>(float_at(value->type, value->bytes.data()));
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    if (value->is_array || value->type != ValueType::kString) return wrong_type(*value, "a string");
    return value->strings.front();
  } else if constexpr (std::is_same_v<T, StringArray>) {
    if (!value->is_array || value->type != ValueType::kString) {
      return wrong_type(*value, "an array of strings");
    }
    return StringArray(value->strings);
  } else if constexpr (std::is_same_v<T, IntArray>) {
    return integers(*value);
  } else {
    static_assert(std::is_same_v<T, FloatArray>);
    if (!value->is_array || !is_float(value->type)) return wrong_type(*value, "an array of floats");
    return FloatArray(value->type, value->bytes);
  }
}

template Result<bool> Metadata::get(std::string_view) const;
template Result<int32_t> Metadata::get(std::string_view) const;
template Result<uint32_t> Metadata::get(std::string_view) const;
template Result<int64_t> Metadata::get(std::string_view) const;
template Result<uint64_t> Metadata::get(std::string_view) const;
template Result<float> Metadata::get(std::string_view) const;
template Result<double> Metadata::get(std::string_view) const;
template Result<std::string_view> Metadata::get(std::string_view) const;
template Result<StringArray> Metadata::get(std::string_view) const;
template Result<IntArray> Metadata::get(std::string_view) const;
template Result<FloatArray> Metadata::get(std::string_view) const;

}  // namespace skein::gguf
