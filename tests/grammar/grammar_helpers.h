// What the tests of grammar/ share: vocabularies, and forms matched byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/json_schema.h"

namespace skein::grammar::testing {

inline std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  return tokens;
}

inline std::shared_ptr<const TokenTrie> trie_of_tokens(std::vector<std::string> tokens) {
  auto trie = TokenTrie::make(std::move(tokens));
  EXPECT_TRUE(trie.ok());
  return *trie;
}

inline std::shared_ptr<const TokenTrie> byte_trie() {
  static const auto trie = trie_of_tokens(byte_tokens());
  return trie;
}

inline constexpr const char* kPieces[] = {"{\"",
                                          "\":",
                                          "\": \"",
                                          "\",",
                                          "\", \"",
                                          "\"}",
                                          "\":{\"",
                                          "},{\"",
                                          "[\"",
                                          "\"]",
                                          "]}",
                                          "}}",
                                          "null",
                                          "true",
                                          "false",
                                          ": ",
                                          ", ",
                                          ":\"",
                                          "\\\"",
                                          "\\n",
                                          "\\u00",
                                          "\n",
                                          "\n  ",
                                          "  ",
                                          "\t\t",
                                          "12",
                                          "123",
                                          "0.5",
                                          "-1",
                                          "1,",
                                          "1,1",
                                          "2]",
                                          "e+",
                                          "\"a\":1,\"a\"",
                                          "\"a\",\"a",
                                          "\",\"",
                                          "é",
                                          "\xC3",
                                          "\xA9t",
                                          "日本",
                                          "\xE6\x97",
                                          "😀",
                                          "\xF0\x9F",
                                          "a",
                                          "ab",
                                          "abc",
                                          "the",
                                          " the",
                                          "name",
                                          "id",
                                          "kind",
                                          "value",
                                          "aa",
                                          "aaaa",
                                          "aaaaaaaaaaaaaaaa",
                                          "it\"",
                                          "x\\",
                                          "",
                                          ""};

// A vocabulary of all bytes and of pieces as BPE would have them: of JSON, words, and UTF-8 cut in
// the middle of characters.
inline std::vector<std::string> small_vocabulary(uint32_t seed, size_t words) {
  std::vector<std::string> tokens = byte_tokens();
  for (const char* piece : kPieces) {
    tokens.emplace_back(piece);
  }
  std::mt19937 random(seed);
  constexpr std::string_view kLetters = "abcdenmi0123 \"{}[]:,\\";
  for (size_t i = 0; i < words; ++i) {
    std::string word;
    for (size_t n = 1 + random() % 5; n > 0; --n) word += kLetters[random() % kLetters.size()];
    tokens.push_back(word);
  }
  return tokens;
}

inline Rules schema_rules(std::string_view schema,
                          const SchemaOptions& options = {.strict = true}) {
  auto result = json_schema_rules(schema, options);
  EXPECT_TRUE(result.ok()) << schema << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result->rules) : Rules{};
}

inline std::shared_ptr<CompiledGrammar> compiled(
    Rules rules, std::shared_ptr<const TokenTrie> trie = byte_trie(),
    const GrammarOptions& options = {}) {
  auto grammar = compile(std::move(rules), std::move(trie), options);
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message);
  return *grammar;
}

inline bool accepts(const std::shared_ptr<CompiledGrammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.advance_bytes(text) && matcher.may_end();
}

inline bool schema_accepts(std::string_view schema, std::string_view text,
                           const SchemaOptions& options = {.strict = true}) {
  return accepts(compiled(schema_rules(schema, options)), text);
}

// The code a schema is refused with, or "" where it is taken.
inline std::string schema_error(std::string_view schema,
                                const SchemaOptions& options = {.strict = true}) {
  auto result = json_schema_rules(schema, options);
  if (!result.ok())
    return std::string(form_code_name(result.error().code)) + " " + result.error().where;
  auto grammar = compile(std::move(result->rules), byte_trie());
  return grammar.ok() ? "" : std::string(form_code_name(grammar.error().code)) + " ";
}

}  // namespace skein::grammar::testing
