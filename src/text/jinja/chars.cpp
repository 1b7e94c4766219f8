#include "text/jinja/chars.h"

#include <algorithm>
#include <utf8proc.h>

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

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | c >> 6));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | c >> 12));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | c >> 18));
    out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

namespace {

// Length of the valid sequence at bytes[pos], or 0.
size_t valid_length(std::string_view bytes, size_t pos) {
  utf8proc_int32_t c = 0;
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()) + pos;
  const auto left = static_cast<utf8proc_ssize_t>(std::min<size_t>(bytes.size() - pos, 4));
  const utf8proc_ssize_t n = utf8proc_iterate(data, left, &c);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

bool ascii_run(std::string_view bytes, size_t pos) {
  return static_cast<unsigned char>(bytes[pos]) < 0x80;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  for (size_t pos = 0; pos < bytes.size();) {
    if (ascii_run(bytes, pos)) {
      ++pos;
      continue;
    }
    const size_t n = valid_length(bytes, pos);
    if (n == 0) return false;
    pos += n;
  }
  return true;
}

std::string to_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t n = valid_length(bytes, pos);
    if (n == 0) {
      append_utf8(out, 0xfffd);
      ++pos;
    } else {
      out.append(bytes.substr(pos, n));
      pos += n;
    }
  }
  return out;
}

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
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

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
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
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_alnum(uint32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return is_alpha(c) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LL;
}

bool is_word(uint32_t c) {
  return c == '_' || is_alnum(c);
}

bool has_only_case(std::string_view bytes, bool upper) {
  bool seen = false;
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
    seen |= upper ? is_upper(c.value) : is_lower(c.value);
    pos += c.length;
  }
  return seen;
}

std::string to_upper(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    if (c.value == 0xdf) {
      out += "SS";  // utf8proc maps one to one; this is the one common exception
    } else {
      append_utf8(out,
                  static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c.value))));
    }
    pos += c.length;
  }
  return out;
}

std::string to_lower(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    append_utf8(out,
                static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
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

}  // namespace skein::jinja
