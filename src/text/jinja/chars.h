// Code points of valid UTF-8, with Python's ideas of whitespace, case and printability, because
// templates were written against Python's str.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skein::jinja {

// The code point that starts at bytes[pos] (pos < size; bytes are valid UTF-8) and its length.
struct CodePoint {
  uint32_t value;
  uint32_t length;
};
CodePoint code_point_at(std::string_view bytes, size_t pos);
void append_utf8(std::string& out, uint32_t code_point);

// Whether all of `bytes` is UTF-8 without surrogates; invalid sequences as U+FFFD otherwise.
bool is_utf8(std::string_view bytes);
std::string to_utf8(std::string_view bytes);

bool is_ascii(std::string_view bytes);
size_t count_code_points(std::string_view bytes);
// Byte offset of the `index`-th code point, or bytes.size() when there are not that many.
size_t offset_of(std::string_view bytes, size_t index);

bool is_space(uint32_t c);      // str.isspace, and what str.strip() strips
bool is_printable(uint32_t c);  // str.isprintable
bool is_alpha(uint32_t c);      // str.isalpha
bool is_digit(uint32_t c);      // decimal digits of any script
bool is_alnum(uint32_t c);
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
bool is_word(uint32_t c);  // \w of a regular expression

// str.isupper and str.islower: at least one cased character and none of the other case.
bool has_only_case(std::string_view bytes, bool upper);

std::string to_upper(std::string_view bytes);
std::string to_lower(std::string_view bytes);

// The byte range of `bytes` that is left when whitespace is cut off the ends.
struct Span {
  size_t begin;
  size_t end;
};
Span strip_space(std::string_view bytes, bool left, bool right);

}  // namespace skein::jinja
