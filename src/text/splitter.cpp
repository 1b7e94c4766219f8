#include "text/splitter.h"

#include <span>
#include <string>

#include "text/bert_text.h"
#include "text/scan.h"

namespace skein {
namespace {

using namespace unicode;  // NOLINT: the class names read like the regexes they stand for

struct Range {
  char32_t first;
  char32_t last;
};

// The cased letters of DeepSeek-LLM's tokenizer.json, sorted.
constexpr Range kDeepSeekLetterRanges[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},
    {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},
    {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x377},     {0x37b, 0x37d},
    {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},
    {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},
    {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},
    {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},
    {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},
    {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},
    {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};
constexpr Range kDeepSeekPunctuationRanges[] = {{0x21, 0x2f},     {0x3a, 0x7e},
                                                {0x2018, 0x201f}, {0x3000, 0x3002},
                                                {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
constexpr Range kDeepSeekCjkRanges[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
constexpr Range kDeepSeek3CjkRanges[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};

bool in_ranges(std::span<const Range> ranges, char32_t code_point) {
  for (const Range& range : ranges) {
    if (code_point <= range.last) return code_point >= range.first;
  }
  return false;
}

bool is_one_of(std::string_view set, char32_t code_point) {
  return code_point < 0x80 && set.find(static_cast<char>(code_point)) != std::string_view::npos;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
         (c >= 0x7B && c <= 0x7E);
}

// The bytes that ByteLevel maps to a character of \p{N}: the digits and ¹²³¼½¾ of Latin-1.
bool is_mapped_number(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
         (byte >= 0xBC && byte <= 0xBE);
}

// Hands out the matches that `match` finds (it returns the end of a match that starts at a
// position, or the position itself) and the gaps between them. A position that has no match is
// stepped over by `length_at`.
template <class Match, class Length>
void each(std::string_view text, PieceSink take, const Match& match, const Length& length_at) {
  size_t gap = 0;
  size_t p = 0;
  while (p < text.size()) {
    const size_t end = match(p);
    if (end == p) {
      p += length_at(p);
      continue;
    }
    if (gap < p) take(text.substr(gap, p - gap), false);
    take(text.substr(p, end - p), true);
    gap = p = end;
  }
  if (gap < p) take(text.substr(gap, p - gap), false);
}

template <class Match>
void each(const Scan& scan, PieceSink take, const Match& match) {
  each(scan.text(), take, match, [&scan](size_t p) { return scan.at(p).length; });
}

// Runs of `is_in`, at most `most` characters long, after an optional \s when `spaced`.
template <class In>
void each_run(const Scan& scan, PieceSink take, size_t most, bool spaced, const In& is_in) {
  each(scan, take, [&](size_t p) {
    const Char first = scan.at(p);
    size_t q = p;
    if (spaced && (first.classes & kSpace) != 0) q += first.length;
    // \s itself may be in the set (DeepSeek's has U+3000), and then needs nothing behind it.
    if (q != p && (q == scan.text().size() || !is_in(scan.at(q)))) q = p;
    size_t count = 0;
    while (count < most && q < scan.text().size()) {
      const Char c = scan.at(q);
      if (!is_in(c)) break;
      q += c.length;
      ++count;
    }
    return count == 0 ? p : q;
  });
}

void each_class(const Scan& scan, PieceSink take, size_t most, Classes classes,
                bool spaced = false) {
  each_run(scan, take, most, spaced, [=](Char c) { return (c.classes & classes) != 0; });
}

void each_in(const Scan& scan, PieceSink take, std::span<const Range> ranges, bool spaced = false) {
  each_run(scan, take, SIZE_MAX, spaced, [=](Char c) { return in_ranges(ranges, c.code_point); });
}

void each_punctuation(const Scan& scan, PieceSink take, size_t most) {
  each_run(scan, take, most, false, [](Char c) {
    return (c.classes & kPunctuation) != 0 || is_ascii_punctuation(c.code_point);
  });
}

// ` ?[^(\s|.,!?…。，、।۔،)]+`
size_t match_bloom(const Scan& scan, size_t p) {
  constexpr Range kExcluded[] = {{0x60c, 0x60c},   {0x6d4, 0x6d4},   {0x964, 0x964},
                                 {0x2026, 0x2026}, {0x3001, 0x3002}, {0xff0c, 0xff0c}};
  size_t q = p + (scan.text()[p] == ' ' ? 1 : 0);
  const size_t start = q;
  while (q < scan.text().size()) {
    const Char c = scan.at(q);
    if ((c.classes & kSpace) != 0 || is_one_of("(|.,!?)", c.code_point) ||
        in_ranges(kExcluded, c.code_point)) {
      break;
    }
    q += c.length;
  }
  return q == start ? p : q;
}

// [^\n]+|[\n]+
size_t match_line(std::string_view text, size_t p) {
  const size_t end = text[p] == '\n' ? text.find_first_not_of('\n', p) : text.find('\n', p);
  return end == std::string_view::npos ? text.size() : end;
}

void each_mapped_number(std::string_view text, PieceSink take, size_t most) {
  const auto match = [&](size_t p) {
    size_t q = p;
    while (q < text.size() && q - p < most && is_mapped_number(static_cast<uint8_t>(text[q]))) ++q;
    return q;
  };
  each(text, take, match, [](size_t) { return 1; });
}

void split_trailing_space(const Scan& scan, PieceSink take) {
  const std::string_view text = scan.text();
  size_t tail = text.size();  // where the white space at the end begins
  for (size_t p = 0; p < text.size();) {
    const Char c = scan.at(p);
    if ((c.classes & kSpace) == 0) tail = text.size();
    if ((c.classes & kSpace) != 0 && tail == text.size()) tail = p;
    p += c.length;
  }
  if (tail > 0) take(text.substr(0, tail), false);
  if (tail < text.size()) take(text.substr(tail), true);
}

void split_ascii_triples(const Scan& scan, PieceSink take) {
  const std::string_view text = scan.text();
  each(scan, take, [&](size_t p) {
    size_t q = p;
    while (q < text.size() && q < p + 3 && text[q] >= '0' && text[q] <= '9') ++q;
    return q == p + 3 ? q : p;
  });
}

void split_sparse(Splitter splitter, const Scan& scan, PieceSink take) {
  switch (splitter) {
    case Splitter::kSpace:
      return each_class(scan, take, 1, kSpace);
    case Splitter::kNumber:
      return each_class(scan, take, 1, kNumber);
    case Splitter::kNumberRun:
      return each_class(scan, take, SIZE_MAX, kNumber);
    case Splitter::kNumberTriple:
      return each_class(scan, take, 3, kNumber);
    case Splitter::kAsciiTriple:
      return split_ascii_triples(scan, take);
    case Splitter::kMappedNumber:
      return each_mapped_number(scan.text(), take, 1);
    case Splitter::kMappedNumberRun:
      return each_mapped_number(scan.text(), take, SIZE_MAX);
    case Splitter::kPunctuation:
      return each_punctuation(scan, take, 1);
    case Splitter::kPunctuationRun:
      return each_punctuation(scan, take, SIZE_MAX);
    case Splitter::kDefaultPunctuation:
      return each_run(scan, take, SIZE_MAX, false, [](Char c) {
        return (c.classes & kPunctuation) != 0 || is_one_of("$+<=>^~|", c.code_point);
      });
    case Splitter::kBertPunctuation:
      return each_run(scan, take, 1, false, [](Char c) {
        return c.code_point != UINT32_MAX && bert::is_punctuation(c.code_point);
      });
    case Splitter::kNewline:
      return each_run(scan, take, 1, false,
                      [](Char c) { return c.code_point == '\n' || c.code_point == '\r'; });
    case Splitter::kTrailingSpace:
      return split_trailing_space(scan, take);
    case Splitter::kSpacedLetters:
      return each_class(scan, take, SIZE_MAX, kLetter, true);
    case Splitter::kSpacedPunctuation:
      return each_class(scan, take, SIZE_MAX, kPunctuation, true);
    case Splitter::kDeepSeekLetters:
      return each_in(scan, take, kDeepSeekLetterRanges, true);
    case Splitter::kDeepSeekPunctuation:
      return each_in(scan, take, kDeepSeekPunctuationRanges, true);
    case Splitter::kDeepSeekCjk:
      return each_in(scan, take, kDeepSeekCjkRanges);
    default:
      return each_in(scan, take, kDeepSeek3CjkRanges);
  }
}

// The regexes that published tokenizer.json files use, spelled as they spell them.
struct Known {
  Splitter splitter;
  std::string_view regex;
};

// clang-format off
constexpr Known kKnown[] = {
    {Splitter::kGpt2, R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re"},
    {Splitter::kGpt2, R"re('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re"},
    {Splitter::kLlama3, R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kLlama3, R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re"},
    {Splitter::kQwen2, R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kQwen2, R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re"},
    {Splitter::kQwen35, R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kMiniCpm5, R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kSeedCoder, R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kTekken, R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kO200k, R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kDeepSeek3, R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
    {Splitter::kBloom, R"re( ?[^(\s|[.,!?…。，、।۔،])]+)re"},
    {Splitter::kBloom, R"re( ?[^(\s|.,!?…。，、।۔،)]+)re"},
    {Splitter::kLines, R"re([^\n]+|[\n]+)re"},
    {Splitter::kSpace, R"re(\s)re"},
    {Splitter::kNumber, R"re(\p{N})re"},
    {Splitter::kNumberRun, R"re(\p{N}+)re"},
    {Splitter::kNumberTriple, R"re(\p{N}{1,3})re"},
    {Splitter::kAsciiTriple, R"re([0-9][0-9][0-9])re"},
    {Splitter::kPunctuationRun, R"re([\p{P}!-/:-@\[-`{-~]+)re"},
    {Splitter::kDefaultPunctuation, R"re([\p{P}\$\+<=>\^~\|]+)re"},
    {Splitter::kNewline, R"re([\r\n])re"},
    {Splitter::kTrailingSpace, R"re(\s+$)re"},
    {Splitter::kSpacedLetters, R"re(\s?\p{L}+)re"},
    {Splitter::kSpacedPunctuation, R"re(\s?\p{P}+)re"},
    {Splitter::kDeepSeekPunctuation, R"re(\s?[!-/:-~！-／：-～‘-‟　-。]+)re"},
    {Splitter::kDeepSeekCjk, R"re([一-龥ࠀ-一가-퟿]+)re"},
    {Splitter::kDeepSeek3Cjk, R"re([一-龥぀-ゟ゠-ヿ]+)re"},
    {Splitter::kDeepSeekLetters, R"re(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)re"},
};
// clang-format on

}  // namespace

void split(Splitter splitter, std::string_view text, PieceSink take) {
  const Scan scan(text);
  // Per splitter, so that the compiler sees constants.
  switch (splitter) {
    case Splitter::kGpt2:
      return each(scan, take, [&](size_t p) { return scan.gpt2(p); });
    case Splitter::kLlama3:
      return each(scan, take, [&](size_t p) { return scan.word(p, {.max_digits = 3}); });
    case Splitter::kQwen2:
      return each(scan, take, [&](size_t p) { return scan.word(p, {.max_digits = 1}); });
    case Splitter::kQwen35:
      return each(scan, take,
                  [&](size_t p) { return scan.word(p, {.max_digits = 1, .marks = true}); });
    case Splitter::kMiniCpm5:
      return each(scan, take, [&](size_t p) { return scan.word(p, {.max_digits = SIZE_MAX}); });
    case Splitter::kSeedCoder:
      return each(scan, take,
                  [&](size_t p) { return scan.word(p, {.max_digits = 1, .newlines = false}); });
    case Splitter::kTekken:
      return each(scan, take, [&](size_t p) {
        return scan.cased(p, {.max_digits = 1, .contractions = false});
      });
    case Splitter::kO200k:
      return each(scan, take,
                  [&](size_t p) { return scan.cased(p, {.max_digits = 3, .contractions = true}); });
    case Splitter::kDeepSeek3:
      return each(scan, take, [&](size_t p) { return scan.deepseek3(p); });
    case Splitter::kBloom:
      return each(scan, take, [&](size_t p) { return match_bloom(scan, p); });
    case Splitter::kWords:
      return each(scan, take, [&](size_t p) {
        const size_t q = scan.run(p, kWord);
        return q != p ? q : scan.run_without(p, kWord | kSpace);
      });
    case Splitter::kLines:
      return each(scan, take, [&](size_t p) { return match_line(text, p); });
    default:
      return split_sparse(splitter, scan, take);
  }
}

std::string_view regex_for_splitter(Splitter splitter) {
  for (const Known& known : kKnown) {
    if (known.splitter == splitter) return known.regex;
  }
  return {};
}

std::optional<Splitter> splitter_for_regex(std::string_view regex) {
  // Some files have the line ends themselves where others have their escapes.
  std::string spelled;
  for (const char c : regex) {
    if (c == '\n' || c == '\r') {
      spelled += c == '\n' ? "\\n" : "\\r";
    } else {
      spelled += c;
    }
  }
  for (const Known& known : kKnown) {
    if (known.regex == spelled) return known.splitter;
  }
  return std::nullopt;
}

}  // namespace skein
