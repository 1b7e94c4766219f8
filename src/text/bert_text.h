// What BERT's tokenizer does to text before its model sees words: the character classes of its
// normalizer and pre-tokenizer, which are those of an older Unicode than unicode.h's, since that is
// what models were trained with. Pure functions.
#pragma once

#include "text/tokenizer_spec.h"

namespace skein::bert {

// NUL, U+FFFD and control characters, but for tab and line ends.
bool is_dropped(char32_t c);
bool is_chinese(char32_t c);
// Accents stand alone in a text that was decomposed.
bool is_accent(char32_t c);
bool is_punctuation(char32_t c);

struct NormalizerOptions {
  bool clean = true;
  bool chinese = true;
  bool accents = true;  // are stripped
  bool lowercase = true;
};
void add_normalizer(const NormalizerOptions& options, TokenizerSpec& spec);

// Words are what white space leaves between it; a punctuation character is a word of its own.
void add_pre_tokenizer(TokenizerSpec& spec);

}  // namespace skein::bert
