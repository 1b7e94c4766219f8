#include "server/store/postgres/postgres_text.h"

#include <algorithm>
#include <cstdint>

#include "text/utf8.h"

namespace skein {
namespace {

constexpr char kEscape = '\x01';
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_plain(char c) {
  return c > kEscape && static_cast<unsigned char>(c) < 0x80;
}

void append_escaped(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text += kEscape;
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
}

}  // namespace

std::string to_postgres_text(std::string_view bytes) {
  if (std::all_of(bytes.begin(), bytes.end(), is_plain)) return std::string(bytes);
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Char next = utf8_next(bytes.substr(0, 4));
    const std::string_view part = bytes.substr(0, std::max<size_t>(1, next.length));
    if (next.kind == Utf8Kind::kValid && part.front() != '\0' && part.front() != kEscape) {
      text += part;
    } else {
      append_escaped(part, text);
    }
    bytes.remove_prefix(part.size());
  }
  return text;
}

std::string from_postgres_text(std::string_view text) {
  if (text.find(kEscape) == std::string_view::npos) return std::string(text);
  std::string bytes;
  while (!text.empty()) {
    if (text.front() != kEscape || text.size() < 3) {
      bytes += text.front();
      text.remove_prefix(1);
      continue;
    }
    const size_t high = kHexDigits.find(text[1]);
    const size_t low = kHexDigits.find(text[2]);
    bytes += static_cast<char>((high << 4 | low) & 0xff);
    text.remove_prefix(3);
  }
  return bytes;
}

}  // namespace skein
