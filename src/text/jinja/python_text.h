// Text as Python reads it, because templates were written against Python's str: code points of
// valid UTF-8, whitespace, case and printability, and the literals of numbers and strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace skein::jinja {

// The code point that starts at bytes[pos] (pos < size; bytes are valid UTF-8) and its length.
struct CodePoint {
  uint32_t value;
  uint32_t length;
};
CodePoint code_point_at(std::string_view bytes, size_t pos);

// Whether all of `bytes` is UTF-8 without surrogates.
bool is_utf8(std::string_view bytes);
// Each byte that is none of a valid sequence becomes U+FFFD.
std::string to_utf8(std::string_view bytes);

size_t count_code_points(std::string_view bytes);
// Byte offset of the `index`-th code point, or bytes.size() when there are not that many.
size_t offset_of(std::string_view bytes, size_t index);

bool is_space(uint32_t c);      // str.isspace, and what str.strip() strips
bool is_printable(uint32_t c);  // str.isprintable
bool is_alpha(uint32_t c);      // str.isalpha
bool is_digit(uint32_t c);      // decimal digits of any script
bool is_alnum(uint32_t c);
bool is_upper(uint32_t c);
bool is_word(uint32_t c);  // \w of a regular expression

// str.isupper and str.islower: at least one cased character and none of the other case.
bool has_only_case(std::string_view bytes, bool upper);

std::string in_case(std::string_view bytes, bool upper);  // str.upper and str.lower

// The byte range of `bytes` that is left when whitespace is cut off the ends.
struct Span {
  size_t begin;
  size_t end;
};
Span strip_space(std::string_view bytes, bool left, bool right);

struct NumberLiteral {
  size_t length = 0;
  bool is_float = false;
  bool out_of_range = false;  // does not fit 64 bits
  int64_t integer = 0;
  double real = 0;
};
// The number that `text` begins with (text[0] is a digit).
NumberLiteral scan_number(std::string_view text, bool may_be_float);

// The inside of a quoted string, backslash escapes resolved as Python's unicode-escape does.
Status unescape_string(std::string_view inside, std::string& out);

enum class ParseNumber : uint8_t { kOk, kBad, kTooLarge };
// int(text, base) and float(text): surrounding whitespace and single underscores are allowed.
ParseNumber parse_int(std::string_view text, int base, int64_t& out);
bool parse_float(std::string_view text, double& out);

}  // namespace skein::jinja
