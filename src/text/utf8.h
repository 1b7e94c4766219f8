// UTF-8, strictly: no overlong forms, surrogates or code points above U+10FFFF. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skein {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Utf8Kind : uint8_t {
  kValid,
  kInvalid,     // no continuation can make these bytes a character
  kIncomplete,  // the text ends inside what may become a character
};

struct Utf8Char {
  Utf8Kind kind;
  uint8_t length;       // bytes; of an invalid one: the maximal part that one U+FFFD stands for
  char32_t code_point;  // when valid
};

// The character at the start of `text`, which is not empty.
Utf8Char utf8_next(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

// `text` with each invalid part, and an incomplete end, as U+FFFD.
std::string utf8_repaired(std::string_view text);

}  // namespace skein
