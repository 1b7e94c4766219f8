#include "text/jinja/format_spec.h"

#include <cmath>
#include <fmt/format.h>

#include "text/jinja/chars.h"
#include "text/jinja/literals.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

constexpr int64_t kMaxPrecision = 300;

void group_thousands(std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
}

// The digits of |value| in the spec's type, without sign.
Result<std::string> float_digits(double value, const FormatSpec& spec) {
  const double magnitude = std::fabs(value);
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) return python_float(magnitude);
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", magnitude, precision);
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      return invalid_argument("unknown format code '{}' for a float", spec.type);
  }
}

Result<std::string> int_digits(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 0:
    case 'd':
    case 'i':
    case 'u':
      return std::to_string(magnitude);
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return float_digits(static_cast<double>(value), spec);
  }
}

Result<Value> padded(Runtime& rt, MarkedText text, const FormatSpec& spec, char default_align) {
  const char align = spec.align == 0 ? default_align : spec.align;
  const double left = align == '<' ? 0 : (align == '^' ? 0.5 : 1);
  if (align == '^') {  // unlike str.center, the odd one goes right
    const auto length = static_cast<int64_t>(count_code_points(text.bytes()));
    if (spec.width > length) {
      const int64_t before = (spec.width - length) / 2;
      SKEIN_ASSIGN(const Value half,
                   pad_text(rt, rt.string(std::move(text)), length + before, spec.fill, 1));
      return pad_text(rt, half, spec.width, spec.fill, 0);
    }
  }
  return pad_text(rt, rt.string(std::move(text)), spec.width, spec.fill, left);
}

}  // namespace

Result<Value> format_number(Runtime& rt, const Value& value, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) {
    return invalid_argument("a precision of {} is more than {}", spec.precision, kMaxPrecision);
  }
  const bool negative =
      value.is(Kind::kFloat) ? std::signbit(value.as_double()) : value.as_int() < 0;
  SKEIN_ASSIGN(std::string digits, value.is(Kind::kFloat) ? float_digits(value.as_double(), spec)
                                                          : int_digits(value.as_int(), spec));
  if (spec.thousands) group_thousands(digits);
  const std::string sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  const bool from_template = !value.is_data();
  if (spec.align == '=') {
    SKEIN_ASSIGN(const Value number,
                 pad_text(rt, rt.string(std::move(digits), from_template),
                          spec.width - static_cast<int64_t>(sign.size()), spec.fill, 1));
    MarkedText out(sign, from_template);
    out.append(number.text());
    return rt.string(std::move(out));
  }
  return padded(rt, MarkedText(sign + digits, from_template), spec, '>');
}

Result<Value> format_text(Runtime& rt, MarkedText text, const FormatSpec& spec,
                          char default_align) {
  if (spec.precision >= 0) {
    text = text.slice(0, offset_of(text.bytes(), static_cast<size_t>(spec.precision)));
  }
  return padded(rt, std::move(text), spec, default_align);
}

Result<int64_t> read_number(std::string_view format, size_t& pos) {
  const size_t begin = pos;
  while (pos < format.size() && format[pos] >= '0' && format[pos] <= '9') ++pos;
  if (pos == begin) return -1;
  int64_t value = 0;
  if (parse_int(format.substr(begin, pos - begin), 10, value) != ParseNumber::kOk) {
    return invalid_argument("a number in a format is too large");
  }
  return value;
}

}  // namespace skein::jinja
