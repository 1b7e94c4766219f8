// How a value is laid out in a field: what "%-6.2f" and "{:>6.2f}" share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace skein::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: numbers right, text left
  char sign = '-';
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// `value` is a number. Fails on a type letter that numbers do not have.
Result<Value> format_number(Runtime& rt, const Value& value, const FormatSpec& spec);
// Cut to the precision and padded; `default_align` where the spec has none.
Result<Value> format_text(Runtime& rt, MarkedText text, const FormatSpec& spec, char default_align);
// The digits at format[pos], which moves past them; -1 when there are none.
Result<int64_t> read_number(std::string_view format, size_t& pos);

}  // namespace skein::jinja
