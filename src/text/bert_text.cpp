#include "text/bert_text.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "text/unicode.h"

namespace skein::bert {
namespace {

struct Range {
  char32_t first, last;
};

// Where a class differs from that of unicode.h; made by tools/make_unicode_tables.py.
#include "text/bert_classes.inc"

constexpr Range kChinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                              {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                              {0x2F800, 0x2FA1F}};

bool is_in(std::span<const Range> ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t x, const Range& range) { return x < range.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

bool has(char32_t c, unicode::Classes classes) {
  return (unicode::table()[c] & classes) != 0;
}

}  // namespace

bool is_dropped(char32_t c) {
  if (c == 0 || c == 0xFFFD) return true;
  if (c == '\t' || c == '\n' || c == '\r') return false;
  constexpr unicode::Classes kOther =
      unicode::bit(unicode::kCc) | unicode::bit(unicode::kCf) | unicode::bit(unicode::kCo);
  return has(c, kOther) != is_in(kOtherControls, c);
}

bool is_chinese(char32_t c) {
  return is_in(kChinese, c);
}

bool is_accent(char32_t c) {
  return has(c, unicode::bit(unicode::kMn)) != is_in(kOtherAccents, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !has(c, unicode::kLetter | unicode::kNumber);
  return has(c, unicode::kPunctuation) != is_in(kOtherPunctuation, c);
}

void add_normalizer(const NormalizerOptions& options, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  const auto add = [&](Kind kind) { spec.normalizer.push_back({kind, {}, {}}); };
  if (options.clean) add(Kind::kBertClean);
  if (options.chinese) add(Kind::kBertChinese);
  if (options.accents) add(Kind::kBertAccents);
  if (options.lowercase) add(Kind::kLowercase);
}

void add_pre_tokenizer(TokenizerSpec& spec) {
  spec.pre_tokenizer.push_back(
      {.splitter = Splitter::kSpace, .behavior = PreTokenizerStep::Behavior::kRemoved});
  spec.pre_tokenizer.push_back({.splitter = Splitter::kBertPunctuation});
}

}  // namespace skein::bert
