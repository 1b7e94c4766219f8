#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace skein {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

// From character to byte. The printable characters of Latin-1 stand for themselves; the other bytes
// are the characters from U+0100 on, in order.
constexpr auto kBytes = [] {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  char32_t next = 0x100;
  for (int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
    bytes[printable ? static_cast<char32_t>(b) : next++] = b;
  }
  return bytes;
}();

}  // namespace

bool append_byte_level(std::string_view spelled, std::string& out) {
  const size_t before = out.size();
  while (!spelled.empty()) {
    const Utf8Char c = utf8_next(spelled);
    if (c.kind != Utf8Kind::kValid || c.code_point >= kAlphabetEnd || kBytes[c.code_point] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(kBytes[c.code_point]));
    spelled.remove_prefix(c.length);
  }
  return true;
}

}  // namespace skein
