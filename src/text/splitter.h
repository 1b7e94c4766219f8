// Splitters: how a text is cut into the words that a tokenizer's model then sees alone. Each is a
// hand-written equivalent of one published regex, in linear time on any input.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/function_ref.h"

namespace skein {

enum class Splitter : uint8_t {
  // These cover the text, but for characters that no alternative takes.
  kGpt2,       // contractions, ` ?\p{L}+`, ` ?\p{N}+`, ` ?` other, white space
  kLlama3,     // (?i) contractions, words with one leading other character, \p{N}{1,3}
  kQwen2,      // as Llama-3 with single digits
  kQwen35,     // as Qwen2 with marks in words
  kMiniCpm5,   // as Llama-3 with \p{N}+
  kSeedCoder,  // as Qwen2, no line ends after symbols
  kTekken,     // words break where lower case ends; single digits
  kO200k,      // as Tekken, contractions at the end of a word, \p{N}{1,3}
  kDeepSeek3,  // the last of the three of DeepSeek-V3
  kBloom,      // ` ?` and anything but white space and some punctuation
  kWords,      // the pre-tokenizer Whitespace: \w+|[^\w\s]+
  kLines,      // [^\n]+|[\n]+
  // These match here and there.
  kSpace,                // \s, one at a time
  kNumber,               // \p{N}
  kNumberRun,            // \p{N}+
  kNumberTriple,         // \p{N}{1,3}
  kAsciiTriple,          // [0-9][0-9][0-9]
  kMappedNumber,         // \p{N} over the characters that ByteLevel makes of bytes
  kMappedNumberRun,      // the same with +
  kPunctuation,          // \p{P} or ASCII punctuation
  kPunctuationRun,       // the same with +
  kDefaultPunctuation,   // [\p{P}\$\+<=>\^~\|]+ : GGUF files that name no pre-tokenizer
  kBertPunctuation,      // BERT's notion of it (bert_text.h)
  kNewline,              // [\r\n]
  kTrailingSpace,        // \s+$
  kSpacedLetters,        // \s?\p{L}+
  kSpacedPunctuation,    // \s?\p{P}+
  kDeepSeekLetters,      // \s? and the cased letters that DeepSeek-LLM lists
  kDeepSeekPunctuation,  // \s?[!-/:-~！-／：-～‘-‟　-。]+
  kDeepSeekCjk,          // [一-龥ࠀ-一가-퟿]+
  kDeepSeek3Cjk,         // [一-龥぀-ゟ゠-ヿ]+
};

// Receives the pieces of a text in order; together they are the text.
using PieceSink = FunctionRef<void(std::string_view piece, bool is_match)>;

// Cuts `text` into matches and the gaps between them. Bytes that are not UTF-8 count as characters
// of no class.
void split(Splitter splitter, std::string_view text, PieceSink take);

// The splitter that a published regex stands for, as tokenizer.json files write it.
std::optional<Splitter> splitter_for_regex(std::string_view regex);
// The other way round; empty where there is none.
std::string_view regex_for_splitter(Splitter splitter);

}  // namespace skein
