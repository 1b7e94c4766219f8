#include "model/families/config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "format/quote.h"
#include "model/spec.h"
#include "tensor/dequantize.h"

namespace skein {

const NamedTensor* ModelFile::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const NamedTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

void Config::fail(Status status) const {
  if (fault_.ok()) fault_ = std::move(status);
}

template <class T>
T Config::value_of(Result<T> read, T fallback) const {
  if (read.ok()) return std::move(read).value();
  fail(read.status());
  return fallback;
}

uint32_t Config::count_between(std::string_view key, uint32_t least) const {
  const int64_t value = value_of<int64_t>(integer_at(key), least);
  if (value >= least && value <= kMaxCount) return static_cast<uint32_t>(value);
  fail(invalid_argument("{} is {}, it must be {} to {}", key, value, least, kMaxCount));
  return least;
}

uint32_t Config::count(std::string_view key) const {
  return count_between(key, 1);
}

uint32_t Config::count_or(std::string_view key, uint32_t fallback) const {
  return has(key) ? count_between(key, 0) : fallback;
}

double Config::number(std::string_view key) const {
  const double value = value_of(number_at(key), 1.0);
  if (std::isfinite(value)) return value;
  fail(invalid_argument("{} is {}", key, value));
  return 1;
}

double Config::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool Config::flag_or(std::string_view key, bool fallback) const {
  return has(key) ? value_of(flag_at(key), fallback) : fallback;
}

std::string Config::text_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? value_of(text_at(key), std::string(fallback)) : std::string(fallback);
}

// config.json

namespace {
const Json& no_object() {
  static const Json kNone = Json::object();
  return kNone;
}
}  // namespace

bool HfConfig::has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

Result<const Json*> HfConfig::at(std::string_view key, std::string_view wanted) const {
  if (!has(key)) return not_found("config.json has no {}", key);
  const Json& value = *object_->find(key);
  const bool is_wanted = wanted == "number"    ? value.is_number()
                         : wanted == "integer" ? value.is_number_integer()
                         : wanted == "boolean" ? value.is_boolean()
                         : wanted == "string"  ? value.is_string()
                         : wanted == "object"  ? value.is_object()
                                               : value.is_array();
  if (is_wanted) return &value;
  return invalid_argument("config.json: {} is a {}, not a {}", key, value.type_name(), wanted);
}

HfConfig HfConfig::with(const Json& object) const {
  HfConfig part = *this;
  part.object_ = &object;
  return part;
}

HfConfig HfConfig::part(std::string_view key) const {
  if (!has(key)) return with(no_object());
  const auto found = at(key, "object");
  if (found.ok()) return with(**found);
  fail(found.status());
  return with(no_object());
}

std::vector<float> HfConfig::numbers(std::string_view key) const {
  std::vector<float> out;
  const auto found = at(key, "array");
  if (!found.ok()) return fail(found.status()), out;
  for (const Json& value : **found) {
    if (!value.is_number()) {
      fail(invalid_argument("config.json: {} holds a {}, not numbers", key, value.type_name()));
      return out;
    }
    out.push_back(value.get<float>());
  }
  return out;
}

std::vector<std::string> HfConfig::texts(std::string_view key) const {
  std::vector<std::string> out;
  const auto found = at(key, "array");
  if (!found.ok()) return fail(found.status()), out;
  for (const Json& value : **found) {
    if (!value.is_string()) {
      fail(invalid_argument("config.json: {} holds a {}, not strings", key, value.type_name()));
      return out;
    }
    out.push_back(value.get<std::string>());
  }
  return out;
}

Result<int64_t> HfConfig::integer_at(std::string_view key) const {
  SKEIN_ASSIGN(const Json* value, at(key, "integer"));
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) return INT64_MAX;
  return value->get<int64_t>();
}

Result<double> HfConfig::number_at(std::string_view key) const {
  SKEIN_ASSIGN(const Json* value, at(key, "number"));
  return value->get<double>();
}

Result<bool> HfConfig::flag_at(std::string_view key) const {
  SKEIN_ASSIGN(const Json* value, at(key, "boolean"));
  return value->get<bool>();
}

Result<std::string> HfConfig::text_at(std::string_view key) const {
  SKEIN_ASSIGN(const Json* value, at(key, "string"));
  return value->get<std::string>();
}

// GGUF

std::string GgufConfig::full(std::string_view key) const {
  return fmt::format("{}.{}", architecture_, key);
}

bool GgufConfig::has(std::string_view key) const {
  return metadata_.has(full(key));
}

Result<int64_t> GgufConfig::integer_at(std::string_view key) const {
  const std::string name = full(key);
  const gguf::Value* value = metadata_.find(name);
  if (value == nullptr || !value->is_array) return metadata_.get<int64_t>(name);
  SKEIN_ASSIGN(const gguf::IntArray values, metadata_.get<gguf::IntArray>(name));
  if (values.empty()) return invalid_argument("{} is empty", name);
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] == values[0]) continue;
    return unimplemented("{} is {} in layer 0 and {} in layer {}; layers must be alike", name,
                         values[0], values[i], i);
  }
  return values[0];
}

Result<double> GgufConfig::number_at(std::string_view key) const {
  const std::string name = full(key);
  const gguf::Value* value = metadata_.find(name);
  const bool is_float = value == nullptr || value->type == gguf::ValueType::kFloat32 ||
                        value->type == gguf::ValueType::kFloat64;
  if (is_float) return metadata_.get<double>(name);
  SKEIN_ASSIGN(const int64_t whole, metadata_.get<int64_t>(name));
  return static_cast<double>(whole);
}

Result<bool> GgufConfig::flag_at(std::string_view key) const {
  return metadata_.get<bool>(full(key));
}

Result<std::string> GgufConfig::text_at(std::string_view key) const {
  SKEIN_ASSIGN(const std::string_view text, metadata_.get<std::string_view>(full(key)));
  return std::string(text);
}

std::vector<float> GgufConfig::floats(std::string_view tensor) const {
  const NamedTensor* found = file().find(tensor);
  if (found == nullptr) return {};
  const TensorView& view = found->view;
  if (view.type != ElementType::kF32 || view.shape.rank() != 1 || view.shape[0] > kMaxHeadDim) {
    fail(invalid_argument("tensor {} is {} {}, not a short list of F32", in_quotes(tensor),
                          info(view.type).name, view.shape.to_string()));
    return {};
  }
  std::vector<float> values(view.shape[0]);
  dequantize(view.type, view.bytes, values);
  return values;
}

}  // namespace skein
