#include "text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utf8proc.h>

#include "text/utf8.h"

namespace skein::jinja {

CodePoint code_point_at(std::string_view bytes, size_t pos) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  const uint32_t b0 = byte(pos);
  if (b0 < 0x80) return {b0, 1};
  if (b0 < 0xe0) return {(b0 & 0x1f) << 6 | (byte(pos + 1) & 0x3f), 2};
  if (b0 < 0xf0) {
    return {(b0 & 0x0f) << 12 | (byte(pos + 1) & 0x3f) << 6 | (byte(pos + 2) & 0x3f), 3};
  }
  return {(b0 & 0x07) << 18 | (byte(pos + 1) & 0x3f) << 12 | (byte(pos + 2) & 0x3f) << 6 |
              (byte(pos + 3) & 0x3f),
          4};
}

bool is_utf8(std::string_view bytes) {
  for (size_t pos = 0; pos < bytes.size();) {
    size_t length = 1;
    if (static_cast<unsigned char>(bytes[pos]) >= 0x80) {
      const Utf8Char next = utf8_next(bytes.substr(pos));
      if (next.kind != Utf8Kind::kValid) return false;
      length = next.length;
    }
    pos += length;
  }
  return true;
}

std::string to_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out;
  while (!bytes.empty()) {
    const Utf8Char next = utf8_next(bytes);
    const bool valid = next.kind == Utf8Kind::kValid;
    out += valid ? bytes.substr(0, next.length) : kReplacementUtf8;
    bytes.remove_prefix(valid ? next.length : 1);
  }
  return out;
}

size_t count_code_points(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

size_t offset_of(std::string_view bytes, size_t index) {
  size_t pos = 0;
  for (; pos < bytes.size() && index > 0; --index) pos += code_point_at(bytes, pos).length;
  return std::min(pos, bytes.size());
}

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

namespace {

utf8proc_category_t category_of(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(uint32_t c) {
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

bool is_alnum(uint32_t c) {
  const auto category = category_of(c);
  return is_alpha(c) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(uint32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_LU;
}

bool is_word(uint32_t c) {
  return c == '_' || is_alnum(c);
}

bool has_only_case(std::string_view bytes, bool upper) {
  bool seen = false;
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    const auto category = category_of(c.value);
    if (category == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU)) return false;
    seen |= category == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    pos += c.length;
  }
  return seen;
}

std::string in_case(std::string_view bytes, bool upper) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    const auto value = static_cast<utf8proc_int32_t>(c.value);
    if (upper && c.value == 0xdf) {
      out += "SS";  // utf8proc maps one to one; this is the one common exception
    } else {
      append_utf8(static_cast<char32_t>(upper ? utf8proc_toupper(value) : utf8proc_tolower(value)),
                  out);
    }
    pos += c.length;
  }
  return out;
}

Span strip_space(std::string_view bytes, bool left, bool right) {
  Span span{0, bytes.size()};
  while (left && span.begin < span.end) {
    const CodePoint c = code_point_at(bytes, span.begin);
    if (!is_space(c.value)) break;
    span.begin += c.length;
  }
  while (right && span.begin < span.end) {
    size_t pos = span.end - 1;
    while (pos > span.begin && (static_cast<unsigned char>(bytes[pos]) & 0xc0) == 0x80) --pos;
    if (!is_space(code_point_at(bytes, pos).value)) break;
    span.end = pos;
  }
  return span;
}

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
  const char letter = static_cast<char>(text[1] | 0x20);  // in lower case
  return letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
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
  const std::string lower = in_case(text, false);
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

// The character that a backslash and `c` stand for; 0 when that is none of the short escapes.
char short_escape(char c) {
  static constexpr std::string_view kLetters = "ntrabfv\\'\"";
  static constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
  const size_t i = kLetters.find(c);
  return i == std::string_view::npos ? '\0' : kMeanings[i];
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
    if (const char simple = short_escape(c); simple != 0) {
      out.push_back(simple);
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      append_utf8(read_digits(in, i + 1, 3, 8, used), out);
      i += 1 + used;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      const uint32_t point = read_digits(in, i + 2, count, 16, used);
      if (used != count) return invalid_argument("truncated \\{} escape", c);
      if (point > 0x10ffff) return invalid_argument("illegal Unicode character");
      if (point >= 0xd800 && point <= 0xdfff) {
        return invalid_argument("\\u{:x} is half a surrogate pair", point);
      }
      append_utf8(point, out);
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
