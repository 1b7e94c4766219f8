// JSON: values from untrusted bytes, and text that is written member by member.
//
//   auto parsed = json::parse(body);
//
//   std::string out = "{";
//   json::append_member(out, "id", id);
//   json::append_member(out, "created", created_s);
//   out.push_back('}');
//
// Every answer is written this way, for some are written once per token. Only what has no fixed
// members is built as a Value and dumped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "text/ordered_json.h"

namespace skein::json {

// Keeps the order of members: templates print tools and messages as they were sent.
using Value = OrderedJson;

inline constexpr size_t kMaxDepth = kMaxJsonLevels;
inline constexpr size_t kMaxValues = kMaxJsonValues;

using ParseError = JsonError;

// As parse_ordered_json.
inline std::variant<Value, ParseError> parse(std::string_view text) {
  return parse_ordered_json(text);
}

// `text` in quotes. What is not valid UTF-8 in it becomes U+FFFD, so the result is always JSON.
void append_string(std::string& out, std::string_view text);

void append_int(std::string& out, int64_t number);

// The shortest text that reads back the same; null for what JSON has no number for.
void append_number(std::string& out, double number);

// `"name":`, after a comma unless it is the first of its object.
void append_name(std::string& out, std::string_view name);

void append_member(std::string& out, std::string_view name, std::string_view text);
template <class T>
requires std::is_arithmetic_v<T>
void append_member(std::string& out, std::string_view name, T value) {
  append_name(out, name);
  if constexpr (std::is_same_v<T, bool>) {
    out.append(value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    append_int(out, static_cast<int64_t>(value));
  } else {
    append_number(out, value);
  }
}
// null in place of an empty text or of 0.
template <class T>
void append_member_or_null(std::string& out, std::string_view name, const T& value) {
  if (value != T{}) return append_member(out, name, value);
  append_name(out, name);
  out.append("null");
}

// `[...]`; `append` writes one item.
template <class Items, class Append>
void append_list(std::string& out, const Items& items, const Append& append) {
  out.push_back('[');
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) out.push_back(',');
    is_first = false;
    append(item);
  }
  out.push_back(']');
}

}  // namespace skein::json
