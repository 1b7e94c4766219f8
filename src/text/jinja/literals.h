// Python's number and string literals, for the lexer and for the filters that read numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace skein::jinja {

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
