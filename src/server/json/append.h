// JSON text, written by hand: for what is sent once per token.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace skein::json {

// `text` in quotes. What is not valid UTF-8 in it becomes U+FFFD, so the result is always JSON.
void append_string(std::string& out, std::string_view text);

void append_int(std::string& out, int64_t number);

// The shortest text that reads back the same; null for what JSON has no number for.
void append_number(std::string& out, double number);

// `"name":`, after a comma unless it is the first of its object.
void append_name(std::string& out, std::string_view name);

void append_member(std::string& out, std::string_view name, std::string_view text);
void append_member(std::string& out, std::string_view name, std::integral auto number) {
  append_name(out, name);
  append_int(out, static_cast<int64_t>(number));
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
