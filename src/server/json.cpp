#include "server/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "text/utf8.h"

namespace skein::json {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

bool is_plain(char c) {
  return static_cast<uint8_t>(c) >= 0x20 && static_cast<uint8_t>(c) < 0x7F && c != '"' && c != '\\';
}

// The second byte of U+0080 to U+009F.
bool is_c1(char c) {
  return static_cast<uint8_t>(c) >= 0x80 && static_cast<uint8_t>(c) < 0xA0;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\t':
      out.append("\\t");
      return;
    default:
      out.append("\\u00");
      out.push_back(kHex[static_cast<uint8_t>(c) >> 4]);
      out.push_back(kHex[static_cast<uint8_t>(c) & 15]);
  }
}

template <class Number>
void append_chars(std::string& out, Number number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), end.ptr);
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    if (static_cast<uint8_t>(text.front()) < 0x80) {
      append_escaped(out, text.front());
      text.remove_prefix(1);
      continue;
    }
    // Control characters of ISO 8859, which terminals may act on: valid as they are, and better
    // seen.
    if (text.size() > 1 && text[0] == '\xC2' && is_c1(text[1])) {
      append_escaped(out, text[1]);
      text.remove_prefix(2);
      continue;
    }
    const Utf8Char next = utf8_next(text);
    out.append(next.kind == Utf8Kind::kValid ? text.substr(0, next.length) : kReplacementUtf8);
    text.remove_prefix(next.length);
  }
  out.push_back('"');
}

void append_int(std::string& out, int64_t number) {
  append_chars(out, number);
}

void append_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out.append("null");
  } else {
    append_chars(out, number);
  }
}

void append_name(std::string& out, std::string_view name) {
  if (out.back() != '{') out.push_back(',');
  out.append("\"").append(name).append("\":");
}

void append_member(std::string& out, std::string_view name, std::string_view text) {
  append_name(out, name);
  append_string(out, text);
}

}  // namespace skein::json
