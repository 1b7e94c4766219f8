#include "server/api/fields.h"

#include <algorithm>
#include <cmath>

namespace skein::api {

Parsed<json::Value> parse_body(std::string_view body) {
  auto parsed = json::parse(body);
  if (const auto* error = std::get_if<json::ParseError>(&parsed)) {
    return invalid_json(error->offset, error->reason);
  }
  json::Value value = std::get<json::Value>(std::move(parsed));
  if (!value.is_object()) return invalid_field("", "The body must be a JSON object.");
  return value;
}

std::optional<int64_t> whole_number(const json::Value& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips numbers
  if (std::trunc(number) != number || std::abs(number) > kExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::vector<int32_t> read_token_ids(const json::Value& list, const std::string& path,
                                    Problem& problem) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size() && !problem; ++i) {
    const auto id = whole_number(list[i]);
    if (!id || *id < 0 || *id > INT32_MAX) {
      problem = invalid_field(fmt::format("{}[{}]", path, i), "A token id is expected here.");
      break;
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Fields::Fields(const json::Value& object, std::string path, Problem& problem)
    : object_(object), path_(std::move(path)), problem_(problem) {
  if (!object_.is_object() && !problem_) {
    problem_ = invalid_field(path_, "An object is expected here.");
  }
}

const json::Value* Fields::find(std::string_view name) const {
  if (problem_) return nullptr;
  for (const auto& [key, value] : object_.get_ref<const json::Value::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(std::string_view name, std::string message) const {
  if (!problem_) problem_ = invalid_field(path_of(name), std::move(message));
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "true or false is expected here.");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = whole_number(*value);
  if (number && *number >= low && *number <= high) return number;
  fail(name, fmt::format("A whole number from {} to {} is expected here.", low, high));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    if (const auto number = value->get<double>(); number >= low && number <= high) return number;
  }
  fail(name, fmt::format("A number from {} to {} is expected here.", low, high));
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name, size_t max_bytes) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "A string is expected here.");
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= max_bytes) return text;
  fail(name,
       fmt::format("The string has {} bytes; at most {} are allowed.", text.size(), max_bytes));
  return std::nullopt;
}

std::string Fields::required_string(std::string_view name, size_t max_bytes) const {
  if (!has(name)) missing(name);
  return string(name, max_bytes).value_or("");
}

std::optional<size_t> Fields::choice(std::string_view name,
                                     std::initializer_list<std::string_view> words) const {
  const auto text = string(name);
  if (!text) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list.append(", ");
    list.append(word);
  }
  fail(name, fmt::format("One of these is expected here: {}.", list));
  return std::nullopt;
}

const json::Value* Fields::object(std::string_view name) const {
  const json::Value* value = find(name);
  if (value != nullptr && !value->is_object()) {
    fail(name, "An object is expected here.");
    return nullptr;
  }
  return value;
}

const json::Value* Fields::array(std::string_view name, size_t max_items) const {
  const json::Value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail(name, "A list is expected here.");
    return nullptr;
  }
  if (value->size() <= max_items) return value;
  fail(name,
       fmt::format("The list has {} items; at most {} are allowed.", value->size(), max_items));
  return nullptr;
}

void Fields::for_each(
    std::string_view name, size_t max_items,
    const std::function<void(const json::Value&, const std::string&)>& take) const {
  const json::Value* list = array(name, max_items);
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size() && !problem_; ++i) {
    take((*list)[i], fmt::format("{}[{}]", path_of(name), i));
  }
}

std::vector<int32_t> Fields::token_ids(std::string_view name, size_t max_items) const {
  const json::Value* list = array(name, max_items);
  if (list == nullptr) return {};
  return read_token_ids(*list, path_of(name), problem_);
}

}  // namespace skein::api
