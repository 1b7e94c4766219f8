// The regexes that published tokenizer.json files use, spelled as they spell them.
#include <string>

#include "text/splitter.h"

namespace skein {
namespace {

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
