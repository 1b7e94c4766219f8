#include "grammar/char_set.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace skein::grammar {
namespace {

using Range = std::pair<uint32_t, uint32_t>;

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (range.first > range.second) continue;
    if (!result.empty() && range.first <= result.back().second + 1) {
      result.back().second = std::max(result.back().second, range.second);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

std::string utf8_of(uint32_t code_point) {
  std::string bytes;
  append_utf8(bytes, code_point);
  return bytes;
}

// All code points of the range have UTF-8 of one length. It is cut until every byte but the last
// ones, which are free, is fixed or a range of its own.
void add_sequences(RegexStore& store, uint32_t first, uint32_t last, std::vector<ExprId>& out) {
  const std::string a = utf8_of(first), b = utf8_of(last);
  const size_t n = a.size();
  for (size_t tail = 1; tail < n; ++tail) {
    const uint32_t block = (1u << (6 * tail)) - 1;
    if ((first & ~block) == (last & ~block)) continue;
    if ((first & block) != 0) {
      add_sequences(store, first, first | block, out);
      add_sequences(store, (first | block) + 1, last, out);
      return;
    }
    if ((last & block) != block) {
      add_sequences(store, first, (last & ~block) - 1, out);
      add_sequences(store, last & ~block, last, out);
      return;
    }
  }
  std::vector<ExprId> bytes;
  for (size_t i = 0; i < n; ++i) {
    bytes.push_back(
        store.byte_class(ByteSet::range(static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i]))));
  }
  out.push_back(store.concat(bytes));
}

ExprId utf8_ranges(RegexStore& store, const std::vector<Range>& ranges) {
  constexpr std::array<uint32_t, 4> kLast = {0x7F, 0x7FF, 0xFFFF, kMaxCodePoint};
  std::vector<ExprId> parts;
  ByteSet ascii;
  for (auto [first, last] : ranges) {
    for (; first <= last && first <= 0x7F; ++first) ascii.add(static_cast<uint8_t>(first));
    for (const uint32_t end : kLast) {
      if (first > last || first > end) continue;
      add_sequences(store, first, std::min(last, end), parts);
      first = end + 1;
    }
  }
  parts.push_back(store.byte_class(ascii));
  return store.either(std::move(parts));
}

std::string_view short_escape(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return {};
  }
}

// A character that a JSON string cannot hold as it is.
ExprId escaped(RegexStore& store, uint32_t c) {
  std::vector<ExprId> ways;
  if (const std::string_view brief = short_escape(c); !brief.empty()) {
    ways.push_back(store.literal(brief));
  }
  if (c < 0x20) {
    const std::string hex = fmt::format("{:02x}", c), upper = fmt::format("{:02X}", c);
    ways.push_back(store.literal("\\u00" + hex));
    ways.push_back(store.literal("\\u00" + upper));
  }
  return store.either(std::move(ways));
}

bool must_be_escaped(uint32_t c) {
  return c < 0x20 || c == '"' || c == '\\';
}

}  // namespace

std::vector<Range> CharSet::ranges() const {
  std::vector<Range> result;
  for (const Range& range : merged(ranges_)) {
    const auto [first, last] = range;
    if (first > kMaxCodePoint) continue;
    if (first < 0xD800) result.emplace_back(first, std::min(last, 0xD7FFu));
    if (last > 0xDFFF) {
      result.emplace_back(std::max(first, 0xE000u), std::min(last, kMaxCodePoint));
    }
  }
  return result;
}

CharSet CharSet::complement() const {
  CharSet result;
  uint32_t next = 0;
  for (const auto& [first, last] : merged(ranges_)) {
    if (first > next) result.add(next, first - 1);
    next = last + 1;
  }
  if (next <= kMaxCodePoint) result.add(next, kMaxCodePoint);
  return result;
}

CharSet CharSet::without_case() const {
  CharSet result = *this;
  for (const auto& [first, last] : ranges_) {
    for (uint32_t c = 'a'; c <= 'z'; ++c) {
      if (first <= c && c <= last) result.add(c - 32, c - 32);
      if (first <= c - 32 && c - 32 <= last) result.add(c, c);
    }
  }
  return result;
}

ExprId one_char(RegexStore& store, const CharSet& set, Spelling spelling) {
  if (uint32_t c = 0; set.single(c)) return spelled_text(store, utf8_of(c), spelling);
  const std::vector<Range> ranges = set.ranges();
  if (spelling == Spelling::kUtf8) return utf8_ranges(store, ranges);
  std::vector<ExprId> parts;
  std::vector<Range> plain;
  for (const auto& [first, last] : ranges) {
    uint32_t from = first;
    for (uint32_t c = first; c <= std::min(last, uint32_t{'\\'}); ++c) {
      if (!must_be_escaped(c)) continue;
      parts.push_back(escaped(store, c));
      if (c > from) plain.emplace_back(from, c - 1);
      from = c + 1;
    }
    if (from <= last) plain.emplace_back(from, last);
  }
  parts.push_back(utf8_ranges(store, plain));
  return store.either(std::move(parts));
}

ExprId spelled_text(RegexStore& store, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kUtf8) return store.literal(text);
  std::vector<ExprId> parts;
  std::string plain;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (const std::string_view brief = short_escape(byte); byte >= 0x20 && !brief.empty()) {
      plain += brief;
    } else if (byte >= 0x20) {
      plain += c;
    } else {
      parts.push_back(store.literal(plain));
      parts.push_back(escaped(store, byte));
      plain.clear();
    }
  }
  parts.push_back(store.literal(plain));
  return store.concat(parts);
}

// Those without escapes as a tree of prefixes, which keeps their derivatives few.
ExprId spelled_texts(RegexStore& store, std::vector<std::string> texts) {
  std::vector<ExprId> others;
  std::erase_if(texts, [&](const std::string& text) {
    const bool plain = std::none_of(
        text.begin(), text.end(), [](char c) { return must_be_escaped(static_cast<uint8_t>(c)); });
    if (!plain) others.push_back(spelled_text(store, text, Spelling::kJson));
    return !plain;
  });
  others.push_back(store.literals(std::move(texts)));
  return store.either(std::move(others));
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
  }
  out += static_cast<char>(0x80 | (c & 0x3F));
}

bool next_code_point(std::string_view text, size_t& at, uint32_t& code_point) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 0 || lead > 0xF4 || text.size() - at < length) return false;
  uint32_t c = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if ((byte & 0xC0) != 0x80) return false;
    c = c << 6 | (byte & 0x3F);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[length] || c > kMaxCodePoint || (c >= 0xD800 && c <= 0xDFFF)) return false;
  at += length;
  code_point = c;
  return true;
}

}  // namespace skein::grammar
