#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"

namespace skein::grammar {
namespace {

using testing::compiled;
using testing::schema_rules;
using testing::small_vocabulary;
using testing::trie_of_tokens;

const char* const kSchemas[] = {
    "{}",
    R"({"type":"object"})",
    R"({"type":"string","maxLength":7})",
    R"({"type":"string","minLength":3,"maxLength":200})",
    R"({"type":"string","pattern":"^[a-c]{2,9}é?$"})",
    R"({"type":"string","pattern":"b","maxLength":6})",
    R"({"type":"integer","minimum":-12,"maximum":1234})",
    R"({"type":"number","multipleOf":0.25})",
    R"({"enum":["a","ab","the name",1,12,null,{"a":1},[1,2]]})",
    R"({"type":"array","items":{"enum":[1,2,12]},"uniqueItems":true})",
    R"({"type":"array","items":{"enum":["a","ab"]},"uniqueItems":true,"minItems":1})",
    R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3})",
    R"({"type":"object","properties":{"a":{"type":"string"},"ab":{},"id":{"type":"integer"}},"required":["id"]})",
    R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":3})",
    R"({"type":"object","patternProperties":{"^a":{"type":"null"},"b$":{"type":"integer"}},"additionalProperties":false})",
    R"({"$defs":{"t":{"type":"object","properties":{"kind":{"const":"t"},"value":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["kind","value"]}},"$ref":"#/$defs/t"})",
    R"({"oneOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"id":{"type":"integer"}},"required":["id"]}]})",
    R"({"not":{"type":["string","object"]}})",
    R"({"type":"string","format":"date"})",
};

// One token after the other, chosen at random among those that the mask allows.
TokenId any_allowed(const TokenMask& mask, uint32_t tokens, std::mt19937& random) {
  std::vector<TokenId> allowed;
  for (TokenId t = 0; t < static_cast<TokenId>(tokens); ++t) {
    if (mask.has(t)) allowed.push_back(t);
  }
  return allowed.empty() ? kNoToken : allowed[random() % allowed.size()];
}

// A mask has exactly the tokens whose bytes may come one by one, and there is always a way on.
void check_walk(const std::shared_ptr<CompiledGrammar>& grammar, uint32_t seed, size_t& states) {
  std::mt19937 random(seed);
  const TokenTrie& trie = grammar->trie();
  Matcher matcher(grammar);
  for (int step = 0; step < 25 && !matcher.must_end(); ++step) {
    const TokenMask* mask = matcher.mask();
    ASSERT_NE(mask, nullptr);
    for (TokenId t = 0; t < static_cast<TokenId>(trie.size()); ++t) {
      Matcher alone = matcher;
      const bool allowed = !trie.bytes_of(t).empty() && alone.advance_bytes(trie.bytes_of(t));
      ASSERT_EQ(mask->has(t), allowed) << "'" << trie.bytes_of(t) << "' after " << matcher.text();
      ASSERT_EQ(matcher.allows(t), allowed) << "'" << trie.bytes_of(t) << "'";
    }
    ++states;
    const TokenId next = any_allowed(*mask, trie.size(), random);
    if (next == kNoToken) break;
    ASSERT_TRUE(matcher.advance(next));
  }
  ASSERT_TRUE(matcher.may_end() || matcher.mask() != nullptr);
  if (!matcher.may_end()) {
    ASSERT_NE(any_allowed(*matcher.mask(), trie.size(), random), kNoToken)
        << "stuck after " << matcher.text();
  }
}

// What a token has inside is counted once for the vocabulary: escapes, pairs of them, characters
// that are cut, quotes.
TEST(Mask, OfACountedStringIsWhatEachTokenAloneWouldBe) {
  std::vector<std::string> tokens = testing::byte_tokens();
  for (const char* token : {"ab",
                            "abc",
                            "abcdefgh",
                            "é",
                            "\xc3",
                            "éa",
                            "\xa9z",
                            "aé",
                            "\\n",
                            "\\na",
                            "a\\",
                            "\\u",
                            "\\u00e9",
                            "\\u00e9x",
                            "\\u00e9\\u00",
                            "\\ud83d",
                            "\\ud83d\\u",
                            "\\ud83d\\ude00",
                            "a\\ud83d",
                            "\\ude00ab",
                            "a\"",
                            "abc\"",
                            "\",",
                            "ab\",",
                            "é\",\"",
                            "\\\"",
                            "\\\"\"]",
                            "abcdef\", \"",
                            "\\ud83d\\ude00\"]"}) {
    tokens.emplace_back(token);
  }
  const auto trie = trie_of_tokens(std::move(tokens));
  ASSERT_NE(trie->json_string(), nullptr);
  size_t states = 0;
  for (const char* length :
       {R"("maxLength":1)", R"("maxLength":2)", R"("maxLength":3)", R"("maxLength":7)",
        R"("minLength":1)", R"("minLength":4)", R"("minLength":2,"maxLength":3)",
        R"("minLength":3,"maxLength":3)", R"("minLength":5,"maxLength":9)"}) {
    SCOPED_TRACE(length);
    const auto grammar = compiled(
        schema_rules(std::string(R"({"type":"array","items":{"type":"string",)") + length + "}}"),
        trie);
    for (uint32_t seed = 0; seed < 20; ++seed) check_walk(grammar, seed, states);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(states, 1'000u);
}

TEST(Mask, IsWhatEachTokenAloneWouldBe) {
  const auto trie = trie_of_tokens(small_vocabulary(11, 150));
  size_t states = 0;
  for (const char* schema : kSchemas) {
    SCOPED_TRACE(schema);
    const auto grammar = compiled(schema_rules(schema), trie);
    for (uint32_t seed = 0; seed < 6; ++seed) check_walk(grammar, seed, states);
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (const char* text : {"root ::= [a-z]+ \"end\" | \"the\" | root \"+\" root",
                           "root ::= \"a\" root \"b\" | \"\\u00e9\"* | [^a]"}) {
    SCOPED_TRACE(text);
    auto rules = gbnf_rules(text);
    ASSERT_TRUE(rules.ok());
    const auto grammar = compiled(std::move(*rules), trie);
    for (uint32_t seed = 0; seed < 6; ++seed) check_walk(grammar, seed, states);
  }
  EXPECT_GT(states, 1000u);
}

// The same requests with caches that hold one mask and an automaton of 64 states, next to others
// that share the grammar.
TEST(Mask, DoesNotDependOnCaches) {
  const auto trie = trie_of_tokens(small_vocabulary(5, 60));
  for (const char* schema : kSchemas) {
    SCOPED_TRACE(schema);
    const auto large = compiled(schema_rules(schema), trie);
    const auto small =
        compiled(schema_rules(schema), trie, {.automaton_bytes = 1024, .mask_bytes = 1024});
    std::mt19937 random(1);
    std::vector<std::pair<Matcher, Matcher>> pairs;
    for (int i = 0; i < 4; ++i) pairs.emplace_back(Matcher(large), Matcher(small));
    for (int step = 0; step < 40; ++step) {
      for (auto& [a, b] : pairs) {
        const TokenMask *x = a.mask(), *y = b.mask();
        ASSERT_TRUE(x != nullptr && y != nullptr);
        ASSERT_EQ(*x, *y) << a.text();
        ASSERT_EQ(a.may_end(), b.may_end());
        ASSERT_EQ(a.must_end(), b.must_end());
        const TokenId next = any_allowed(*x, trie->size(), random);
        if (next == kNoToken) continue;
        ASSERT_TRUE(a.advance(next) && b.advance(next));
      }
    }
  }
}

TEST(Mask, TokensWithTheSameBytesAndWithout) {
  std::vector<std::string> tokens = testing::byte_tokens();
  for (const char* more : {"ab", "ab", "", "ab"}) tokens.emplace_back(more);
  auto rules = choice_rules({"abc"});
  ASSERT_TRUE(rules.ok());
  Matcher matcher(compiled(std::move(*rules), trie_of_tokens(tokens)));
  const TokenMask* mask = matcher.mask();
  EXPECT_TRUE(mask->has('a') && mask->has(256) && mask->has(257) && mask->has(259));
  EXPECT_FALSE(mask->has(258) || mask->has('b'));
  EXPECT_FALSE(matcher.allows(258));
  EXPECT_FALSE(matcher.advance(258));
}

TEST(Mask, AVocabularyNeedsEveryByte) {
  std::vector<std::string> tokens = testing::byte_tokens();
  tokens['q'] = "qu";
  const auto trie = TokenTrie::make(tokens);
  ASSERT_FALSE(trie.ok());
  EXPECT_EQ(trie.status().code(), Code::kUnimplemented);
  EXPECT_NE(trie.message().find("0x71"), std::string::npos);
}

// 15 MB of long tokens took 0.9 GB for their tries, and a file may have 256 MB of them.
TEST(Mask, AVocabularyOfTooManyBytesIsRefused) {
  std::vector<std::string> tokens = testing::byte_tokens();
  for (uint32_t i = 0; i < 8192; ++i) {
    tokens.push_back(fmt::format("{:06}", i) + std::string(1018, '"'));
  }
  EXPECT_EQ(TokenTrie::make(tokens).status().code(), Code::kUnimplemented);
  tokens.resize(256 + 4096);
  EXPECT_TRUE(TokenTrie::make(tokens).ok());
}

// Every form walks as deep as the longest token.
TEST(Mask, AVocabularyWithATokenThatIsTooLongIsRefused) {
  std::vector<std::string> tokens = testing::byte_tokens();
  tokens.emplace_back(4096, 'x');
  EXPECT_TRUE(TokenTrie::make(tokens).ok());
  tokens.back() += 'x';
  EXPECT_EQ(TokenTrie::make(tokens).status().code(), Code::kUnimplemented);
}

TEST(Mask, BoundedStringsShareTheirMask) {
  const auto trie = trie_of_tokens(small_vocabulary(2, 100));
  const auto grammar = compiled(schema_rules(R"({"type":"string","maxLength":5000})"), trie);
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.advance_bytes("\"a"));
  const TokenMask* first = matcher.mask();
  ASSERT_TRUE(matcher.advance_bytes("bcdefgh"));
  EXPECT_EQ(matcher.mask(), first);  // the very same one
}

}  // namespace
}  // namespace skein::grammar
