#include "grammar/json_text.h"

#include <algorithm>
#include <numeric>

namespace skein::grammar {
namespace {

ExprId digit_range(RegexStore& store, int first, int last) {
  if (first > last) return kNothing;
  return store.byte_class(
      ByteSet::range(static_cast<uint8_t>('0' + first), static_cast<uint8_t>('0' + last)));
}

ExprId digits(RegexStore& store, uint32_t lo, uint32_t hi) {
  return store.repeat(digit_range(store, 0, 9), lo, hi);
}

ExprId whole_digits(RegexStore& store) {
  return store.either(store.byte('0'),
                      store.concat(digit_range(store, 1, 9), digits(store, 0, kMaxDigits - 1)));
}

bool is_word_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
         c == '-' || c == '.';
}

// The text between the quotes of a JSON string that one of our expressions has matched.
std::string unescaped(std::string_view inside) {
  std::string text;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\' || i + 1 >= inside.size()) {
      text += inside[i];
      continue;
    }
    const char c = inside[++i];
    constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      text += kTo[at];
    } else if (c == 'u' && i + 4 < inside.size()) {
      uint32_t value = 0;
      for (size_t k = 1; k <= 4; ++k) {
        const char d = inside[i + k];
        value = value << 4 | static_cast<uint32_t>(d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
      }
      append_utf8(text, value);
      i += 4;
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

ExprId json_white_space(RegexStore& store) {
  const ExprId indent = store.repeat(store.byte_class(ByteSet::of(" \t")), 0, 20);
  return store.either({kEmptyText, store.byte(' '), store.concat(store.byte('\n'), indent)});
}

ExprId json_char(RegexStore& store) {
  return store.common(RegexStore::Common::kJsonChar,
                      [&] { return one_char(store, CharSet{}.complement(), Spelling::kJson); });
}

namespace {

ExprId free_char(RegexStore& store) {
  const ExprId hex = store.byte_class(ByteSet::of("0123456789abcdefABCDEF"));
  const ExprId d = store.byte_class(ByteSet::of("dD"));
  const std::vector<ExprId> pair = {
      store.literal("\\u"), d, store.byte_class(ByteSet::of("89abAB")),   hex, hex,
      store.literal("\\u"), d, store.byte_class(ByteSet::of("cdefCDEF")), hex, hex};
  return store.either(json_char(store), store.concat(pair));
}

ExprId number(RegexStore& store) {
  const ExprId fraction = store.concat(store.byte('.'), digits(store, 1, kMaxDigits));
  const std::vector<ExprId> exponent = {store.byte_class(ByteSet::of("eE")),
                                        store.optional(store.byte_class(ByteSet::of("+-"))),
                                        digits(store, 1, 3)};
  const std::vector<ExprId> parts = {store.optional(store.byte('-')), whole_digits(store),
                                     store.optional(fraction),
                                     store.optional(store.concat(exponent))};
  return store.concat(parts);
}

ExprId integer(RegexStore& store) {
  const ExprId positive = store.concat(digit_range(store, 1, 9), digits(store, 0, kMaxDigits - 1));
  return store.either(store.byte('0'), store.concat(store.optional(store.byte('-')), positive));
}

}  // namespace

ExprId json_free_char(RegexStore& store) {
  return store.common(RegexStore::Common::kJsonFreeChar, [&] { return free_char(store); });
}

ExprId json_number(RegexStore& store) {
  return store.common(RegexStore::Common::kJsonNumber, [&] { return number(store); });
}

ExprId json_integer(RegexStore& store) {
  return store.common(RegexStore::Common::kJsonInteger, [&] { return integer(store); });
}

std::string_view last_scalar(std::string_view text) {
  size_t begin = text.size();
  if (!text.empty() && text.back() == '"') {
    for (begin = text.size() - 1; begin > 0;) {
      if (text[--begin] != '"') continue;
      size_t slashes = 0;
      while (slashes < begin && text[begin - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) break;
    }
  } else {
    while (begin > 0 && is_word_char(text[begin - 1])) --begin;
  }
  return text.substr(begin);
}

std::string last_scalar_of(std::string_view text, std::string_view more) {
  for (size_t back = 64;; back *= 4) {
    const size_t from = back < text.size() ? text.size() - back : 0;
    std::string joined(text.substr(from));
    joined += more;
    const std::string_view scalar = last_scalar(joined);
    const size_t begin = joined.size() - scalar.size();
    // One that begins where the text was cut, or behind a backslash there, may be longer.
    if (from == 0 || (begin > 0 && joined[begin - 1] != '\\')) return std::string(scalar);
  }
}

ExprId number_spellings(RegexStore& store, const Decimal& value) {
  const ExprId zeros = store.repeat(store.byte('0'), 1, kUnbounded);
  std::string text = value.to_string();
  ExprId expression = store.literal(text);
  if (value.is_integer()) {
    expression = store.concat(expression, store.optional(store.concat(store.byte('.'), zeros)));
  } else {
    expression = store.concat(expression, store.optional(zeros));
  }
  if (value.is_zero()) expression = store.concat(store.optional(store.byte('-')), expression);
  return expression;
}

ExprId scalar_spellings(RegexStore& store, std::string_view scalar) {
  if (scalar.size() >= 2 && scalar.front() == '"') {
    const std::string text = unescaped(scalar.substr(1, scalar.size() - 2));
    const std::vector<ExprId> parts = {store.byte('"'), spelled_text(store, text, Spelling::kJson),
                                       store.byte('"')};
    return store.concat(parts);
  }
  if (!scalar.empty() && (scalar[0] == '-' || (scalar[0] >= '0' && scalar[0] <= '9'))) {
    if (const auto value = Decimal::parse(scalar)) return number_spellings(store, *value);
  }
  return store.literal(scalar);
}

}  // namespace skein::grammar
