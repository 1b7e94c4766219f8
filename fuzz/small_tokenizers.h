// A small tokenizer of each kind, for the fuzz targets.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/bert_text.h"
#include "text/tokenizer.h"

namespace skein::fuzz {

inline Tokenizer must_create(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  SKEIN_CHECK(tokenizer.ok(), "{}", tokenizer.message());
  return std::move(tokenizer).value();
}

// Adds a piece and gives its id.
inline TokenId add(TokenizerSpec& spec, std::string_view text, TokenType type = TokenType::kNormal,
                   double score = 0) {
  spec.pieces.push_back(text);
  spec.types.push_back(type);
  spec.scores.push_back(score);
  return static_cast<TokenId>(spec.pieces.size() - 1);
}

inline void add_token(TokenizerSpec& spec, std::string_view text, bool special) {
  AddedToken token;
  token.text = text;
  token.special = special;
  token.id = add(spec, text, special ? TokenType::kControl : TokenType::kUserDefined);
  spec.added.push_back(std::move(token));
}

// All 256 bytes and a few merges, behind the given splitter.
inline Tokenizer byte_level(Splitter splitter) {
  TokenizerSpec spec;
  spec.byte_level = true;
  spec.decoder = TokenizerSpec::Decoder::kByteLevel;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    const uint32_t c = printable ? b : next++;
    std::string text;
    if (c < 0x80) {
      text = static_cast<char>(c);
    } else {
      text = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
    }
    add(spec, text);
  }
  // "Ġ" is a space; "Ã©" are the two bytes of é.
  for (const auto& [left, right] : {std::pair{"a", "a"},
                                    {"aa", "aa"},
                                    {"Ġ", "a"},
                                    {"Ġ", "Ġ"},
                                    {"Ã", "©"},
                                    {"Ġ", "t"},
                                    {"Ġt", "he"},
                                    {"h", "e"},
                                    {"ð", "Ł"}}) {
    const std::string joined = std::string(left) + right;
    add(spec, joined);
    spec.merges.push_back(left);
    spec.merges.push_back(right);
  }
  add_token(spec, "<|end|>", true);
  add_token(spec, "<think>", false);
  PreTokenizerStep step;
  step.splitter = splitter;
  spec.pre_tokenizer.push_back(std::move(step));
  return must_create(std::move(spec));
}

// SentencePiece's kinds: byte pieces, words with U+2581.
inline Tokenizer sentencepiece(TokenizerSpec::Model model) {
  TokenizerSpec spec;
  spec.model = model;
  spec.byte_fallback = true;
  spec.decoder = TokenizerSpec::Decoder::kMetaspace;
  spec.strip_leading_space = true;
  spec.normalizer.push_back({NormalizerStep::Kind::kPrepend, {}, " "});
  spec.normalizer.push_back({NormalizerStep::Kind::kReplace, " ", std::string(kMetaspace)});
  spec.unknown = add(spec, "<unk>", TokenType::kUnknown);
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(b));
    add(spec, text, TokenType::kByte);
  }
  double score = -1;
  for (const char* text : {"▁", "a", "b", "t", "h", "e", "é", "aa", "aaaa", "▁a", "▁▁", "▁t", "he",
                           "▁the", "ab", "ba", "é", "éa", "中"}) {
    add(spec, text, TokenType::kNormal, score);
    score -= 0.5;
  }
  add_token(spec, "</s>", true);
  add_token(spec, "<think>", false);
  return must_create(std::move(spec));
}

// BERT's kind.
inline Tokenizer word_pieces() {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kWordPiece;
  spec.decoder = TokenizerSpec::Decoder::kWordPiece;
  spec.strip_leading_space = true;
  spec.continuing_prefix = "##";
  spec.max_word_chars = 20;
  bert::add_normalizer({}, spec);
  bert::add_pre_tokenizer(spec);
  spec.unknown = add(spec, "[UNK]", TokenType::kUnknown);
  for (const char* text : {"a", "##a", "aa", "##aaaa", "the", "t", "##he", "##e", "e", "中", "##é",
                           ",", "<", ">", "##", "####"}) {
    add(spec, text);
  }
  add_token(spec, "[CLS]", true);
  add_token(spec, "<think>", false);
  spec.prefix = {spec.added[0].id};
  return must_create(std::move(spec));
}

}  // namespace skein::fuzz
