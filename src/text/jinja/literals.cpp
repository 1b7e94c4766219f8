#include "text/jinja/literals.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/chars.h"

namespace skein::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Length of digits of `base` with single underscores between them (and before, if `lead`).
size_t digits_length(std::string_view text, int base, bool lead) {
  size_t n = 0;
  for (;;) {
    const bool underscore = n < text.size() && text[n] == '_' && (n > 0 || lead);
    const size_t at = n + (underscore ? 1 : 0);
    if (at >= text.size() || digit_value(text[at]) >= base) return n;
    n = at + 1;
  }
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c != '_') out.push_back(c);
  }
  return out;
}

// Length of the fraction and exponent that follow the digits of a float; 0 when it is none.
size_t float_tail_length(std::string_view tail) {
  size_t n = 0;
  if (tail.size() > 1 && tail[0] == '.') {
    if (const size_t digits = digits_length(tail.substr(1), 10, false); digits > 0) n = 1 + digits;
  }
  if (n < tail.size() && (tail[n] == 'e' || tail[n] == 'E')) {
    size_t p = n + 1;
    if (p < tail.size() && (tail[p] == '+' || tail[p] == '-')) ++p;
    if (const size_t digits = digits_length(tail.substr(p), 10, false); digits > 0) n = p + digits;
  }
  return n;
}

// The value of clean digits in `base`.
ParseNumber digits_value(std::string_view digits, int base, bool negative, int64_t& out) {
  const uint64_t limit = negative ? uint64_t{1} << 63 : (uint64_t{1} << 63) - 1;
  uint64_t value = 0;
  for (char c : digits) {
    const auto digit = static_cast<uint64_t>(digit_value(c));
    if (value > (limit - digit) / static_cast<uint64_t>(base)) return ParseNumber::kTooLarge;
    value = value * static_cast<uint64_t>(base) + digit;
  }
  out = static_cast<int64_t>(negative ? ~value + 1 : value);
  return ParseNumber::kOk;
}

int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1]) {
    case 'b':
    case 'B':
      return 2;
    case 'o':
    case 'O':
      return 8;
    case 'x':
    case 'X':
      return 16;
    default:
      return 0;
  }
}

std::string_view strip(std::string_view text) {
  const Span span = strip_space(text, true, true);
  return text.substr(span.begin, span.end - span.begin);
}

}  // namespace

NumberLiteral scan_number(std::string_view text, bool may_be_float) {
  NumberLiteral out;
  const size_t whole = digits_length(text, 10, false);
  const size_t tail = may_be_float ? float_tail_length(text.substr(whole)) : 0;
  if (tail > 0) {
    out.length = whole + tail;
    out.is_float = true;
    parse_float(without_underscores(text.substr(0, out.length)), out.real);
    return out;
  }
  int base = prefix_base(text);
  size_t prefix = 2;
  size_t digits = base == 0 ? 0 : digits_length(text.substr(2), base, true);
  if (digits == 0) {
    base = 10, prefix = 0, digits = whole;
    if (text[0] == '0') {  // 0 and 000, but 07 is two tokens
      digits = 1;
      while (digits < whole && (text[digits] == '0' || text[digits] == '_')) ++digits;
    }
  }
  out.length = prefix + digits;
  out.out_of_range = digits_value(without_underscores(text.substr(prefix, digits)), base, false,
                                  out.integer) != ParseNumber::kOk;
  return out;
}

ParseNumber parse_int(std::string_view text, int base, int64_t& out) {
  text = strip(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const int prefixed = prefix_base(text);
  bool lead = false;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    base = prefixed;
    text.remove_prefix(2);
    lead = true;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.empty()) return ParseNumber::kBad;
  if (digits_length(text, base, lead) != text.size()) return ParseNumber::kBad;
  return digits_value(without_underscores(text), base, negative, out);
}

bool parse_float(std::string_view text, double& out) {
  text = strip(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const std::string lower = to_lower(text);
  if (lower == "inf" || lower == "infinity") {
    out = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else {
    const size_t whole = digits_length(text, 10, false);
    size_t used = whole + float_tail_length(text.substr(whole));
    if (used == whole && whole > 0 && text.substr(whole) == ".") used = text.size();  // "1."
    if (used != text.size() || (whole == 0 && (text.size() < 2 || text[0] != '.'))) return false;
    const std::string clean = without_underscores(text);
    const auto [end, error] = std::from_chars(clean.data(), clean.data() + clean.size(), out);
    if (error == std::errc::result_out_of_range) {
      out = std::strtod(clean.c_str(), nullptr);
    } else if (error != std::errc() || (end != clean.data() + clean.size() && *end != '.')) {
      return false;
    }
  }
  if (negative) out = -out;
  return true;
}

namespace {

// Reads up to `count` digits of `base` at text[pos]; the number read goes to `used`.
uint32_t read_digits(std::string_view text, size_t pos, size_t count, int base, size_t& used) {
  uint32_t value = 0;
  used = 0;
  while (used < count && pos + used < text.size() && digit_value(text[pos + used]) < base) {
    value =
        value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit_value(text[pos + used]));
    ++used;
  }
  return value;
}

char simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return 0;
  }
}

}  // namespace

Status unescape_string(std::string_view in, std::string& out) {
  out.reserve(in.size());
  for (size_t i = 0; i < in.size();) {
    if (in[i] != '\\') {
      out.push_back(in[i++]);
      continue;
    }
    const char c = i + 1 < in.size() ? in[i + 1] : '\0';
    size_t used = 0;
    if (const char simple = simple_escape(c); simple != 0) {
      out.push_back(simple);
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      append_utf8(out, read_digits(in, i + 1, 3, 8, used));
      i += 1 + used;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      const uint32_t point = read_digits(in, i + 2, count, 16, used);
      if (used != count) return invalid_argument("truncated \\{} escape", c);
      if (point > 0x10ffff) return invalid_argument("illegal Unicode character");
      if (point >= 0xd800 && point <= 0xdfff) {
        return invalid_argument("\\u{:x} is half a surrogate pair", point);
      }
      append_utf8(out, point);
      i += 2 + count;
    } else if (c == 'N') {
      return invalid_argument("\\N escapes are not supported");
    } else {
      out.push_back('\\');
      ++i;
    }
  }
  return {};
}

}  // namespace skein::jinja
