// Control tokens in rules, free text in front of what is bound, and the space that a SentencePiece
// answer begins with.
#include <gtest/gtest.h>

#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"
#include "grammar/lark.h"

namespace skein::grammar {
namespace {

using testing::byte_tokens;
using testing::compiled;
using testing::small_vocabulary;
using testing::trie_of_tokens;

constexpr TokenId kCall = 256, kEnd = 257, kOther = 258;

std::shared_ptr<const TokenTrie> with_controls() {
  std::vector<std::string> tokens = byte_tokens();
  for (const char* more : {"", "", "", "ab", "{\"", "}x"}) tokens.emplace_back(more);
  return trie_of_tokens(tokens);
}

TokenId control_named(std::string_view name) {
  return name == "<|call|>" ? kCall : name == "<|end|>" ? kEnd : kNoToken;
}

Rules rules_or_nothing(FormResult<Rules> rules) {
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  return rules.ok() ? std::move(*rules) : Rules{};
}

// What brute force finds: every token tried alone, those without bytes as well.
void expect_mask_of_each(Matcher& matcher, const TokenTrie& trie) {
  const TokenMask* mask = matcher.mask();
  ASSERT_NE(mask, nullptr);
  for (TokenId t = 0; t < static_cast<TokenId>(trie.size()); ++t) {
    Matcher alone = matcher;
    const bool allowed = alone.advance(t);
    ASSERT_EQ(mask->has(t), allowed) << t << " after '" << matcher.text() << "'";
    ASSERT_EQ(matcher.allows(t), allowed) << t << " after '" << matcher.text() << "'";
  }
}

TEST(ControlTokens, AreAllowedWhereARuleNamesThem) {
  const auto trie = with_controls();
  for (const char* text :
       {"root ::= \"a\"+ <|call|> \"b\"? <|end|>", "root ::= \"a\"+ <[256]> \"b\"? <[257]>"}) {
    SCOPED_TRACE(text);
    Matcher matcher(compiled(rules_or_nothing(gbnf_rules(text, control_named)), trie));
    EXPECT_FALSE(matcher.allows(kCall));
    ASSERT_TRUE(matcher.advance('a'));
    expect_mask_of_each(matcher, *trie);
    EXPECT_TRUE(matcher.mask()->has(kCall) && matcher.mask()->has('a'));
    EXPECT_FALSE(matcher.mask()->has(kEnd) || matcher.mask()->has('b'));
    EXPECT_FALSE(matcher.mask()->has(259));  // "ab": the token must stand between them
    ASSERT_TRUE(matcher.advance(kCall));
    expect_mask_of_each(matcher, *trie);
    ASSERT_TRUE(matcher.advance('b'));
    EXPECT_FALSE(matcher.may_end());
    EXPECT_FALSE(matcher.advance(kOther));
    ASSERT_TRUE(matcher.advance(kEnd));
    EXPECT_TRUE(matcher.may_end() && matcher.must_end());
    EXPECT_EQ(matcher.zone(), Zone::kEnded);
    EXPECT_EQ(matcher.text(), "ab");
  }
}

TEST(ControlTokens, StandInLarkRules) {
  const auto trie = with_controls();
  Matcher matcher(compiled(
      rules_or_nothing(lark_rules("start: item+\nitem: <|call|> /[0-9]+/ <|end|>", control_named)),
      trie));
  for (int i = 0; i < 3; ++i) {
    expect_mask_of_each(matcher, *trie);
    for (const TokenId token : {kCall, TokenId{'4'}, TokenId{'2'}, kEnd}) {
      ASSERT_TRUE(matcher.advance(token));
    }
    EXPECT_TRUE(matcher.may_end());
    EXPECT_FALSE(matcher.must_end());  // another item may follow
  }
}

TEST(ControlTokens, AreRefusedByName) {
  const auto gbnf = gbnf_rules("root ::= \"a\" <|none|>", control_named);
  ASSERT_FALSE(gbnf.ok());
  EXPECT_EQ(gbnf.error().message, "'<|none|>' is not a control token of this model at 1:14");
  const auto lark = lark_rules("start: WORD\nWORD: /a/ <|call|>", control_named);
  ASSERT_FALSE(lark.ok());
  EXPECT_EQ(lark.error().message, "a control token inside a terminal at 2:11");
  EXPECT_FALSE(gbnf_rules("root ::= <|call|>").ok());  // without a model, none has a name
  EXPECT_FALSE(gbnf_rules("root ::= <[12").ok());
  EXPECT_FALSE(gbnf_rules("root ::= <[]>").ok());
  EXPECT_FALSE(gbnf_rules("root ::= <[99999999999]>").ok());
  for (const char* text : {"root ::= <[97]>", "root ::= <[262]>"}) {  // has bytes; is no token
    const auto grammar = compile(rules_or_nothing(gbnf_rules(text)), with_controls());
    ASSERT_FALSE(grammar.ok());
    EXPECT_NE(grammar.error().message.find("is not a control token"), std::string::npos);
  }
}

// With an automaton that is forgotten at every step, a matcher reads its control tokens again.
TEST(ControlTokens, AreReadAgainWhenTheAutomatonIsForgotten) {
  const auto trie = with_controls();
  const GrammarOptions tiny{.automaton_bytes = 1, .mask_bytes = 1};
  const char* text = "root ::= (\"a\" <|call|>)+ <|end|> \"b\"";
  Matcher large(compiled(rules_or_nothing(gbnf_rules(text, control_named)), trie));
  Matcher small(compiled(rules_or_nothing(gbnf_rules(text, control_named)), trie, tiny));
  for (const TokenId token : {TokenId{'a'}, kCall, TokenId{'a'}, kCall, kEnd, TokenId{'b'}}) {
    ASSERT_EQ(*large.mask(), *small.mask());
    ASSERT_TRUE(large.advance(token) && small.advance(token));
    ASSERT_EQ(large.must_end(), small.must_end());
  }
}

// Text, then any number of calls that a control token begins.
Rules calls_behind_text(std::vector<std::string> markers) {
  Rules rules;
  rules.start = rules.add_rule();
  const Symbol text = free_text(rules, markers);
  const uint32_t call = rules.add_rule();
  const Symbol begin = markers.empty()
                           ? Symbol::terminal(rules.add_token(kCall))
                           : Symbol::terminal(rules.add_terminal(rules.regex->literal(markers[0])));
  rules.add(call, {begin, Symbol::terminal(rules.add_terminal(rules.regex->literal("{}")))});
  rules.add(rules.start, {text});
  rules.add(rules.start, {text, Symbol::rule(call), Symbol::rule(rules.start)});
  return rules;
}

TEST(FreeText, NeedsNoMaskUntilAControlToken) {
  const auto trie = with_controls();
  Matcher matcher(compiled(calls_behind_text({}), trie));
  for (const char* piece : {"any ", "text\xFF", "{\"ab"}) {
    EXPECT_EQ(matcher.zone(), Zone::kFree);
    expect_mask_of_each(matcher, *trie);
    EXPECT_TRUE(matcher.may_end());
    ASSERT_TRUE(matcher.advance_bytes(piece));
  }
  ASSERT_TRUE(matcher.advance(kCall));
  EXPECT_EQ(matcher.zone(), Zone::kBound);
  expect_mask_of_each(matcher, *trie);
  EXPECT_FALSE(matcher.may_end());
  ASSERT_TRUE(matcher.advance_bytes("{}"));
  EXPECT_EQ(matcher.zone(), Zone::kFree);
}

TEST(FreeText, IsBoundFromItsMarkerOn) {
  std::vector<std::string> tokens = small_vocabulary(3, 40);
  for (const char* more : {"<c", "c>", ">x", ">{", "<c>{", "<c>x", "<<"}) tokens.emplace_back(more);
  const auto trie = trie_of_tokens(tokens);
  Matcher matcher(compiled(calls_behind_text({"<c>"}), trie));
  for (const char* piece : {"a < b", "<<", "c"}) {
    EXPECT_TRUE(matcher.may_end());
    expect_mask_of_each(matcher, *trie);
    ASSERT_TRUE(matcher.advance_bytes(piece));
  }
  EXPECT_EQ(matcher.zone(), Zone::kBound);  // ">x" would be a call that is none
  expect_mask_of_each(matcher, *trie);
  ASSERT_TRUE(matcher.advance_bytes(">"));
  EXPECT_FALSE(matcher.may_end());
  EXPECT_FALSE(matcher.advance_bytes("x"));
  ASSERT_TRUE(matcher.advance_bytes("{} and on"));
  EXPECT_TRUE(matcher.may_end());
}

TEST(LeadingSpace, IsNoPartOfTheText) {
  std::vector<std::string> tokens = byte_tokens();
  for (const char* more : {" yes", "yes", " no", "  yes", " y", "  "}) tokens.emplace_back(more);
  const auto trie = trie_of_tokens(tokens);
  const auto grammar = compiled(rules_or_nothing(choice_rules({"yes", " no"})), trie);
  Matcher plain(grammar), strips(grammar, true);
  EXPECT_FALSE(plain.allows(256));
  EXPECT_TRUE(plain.allows(258));
  for (const TokenId first : {TokenId{256}, TokenId{257}, TokenId{260}, TokenId{' '}}) {
    Matcher matcher = strips;
    ASSERT_TRUE(matcher.advance(first)) << first;
    EXPECT_EQ(matcher.text(), first == ' ' ? "" : first == 260 ? "y" : "yes");
  }
  EXPECT_FALSE(strips.allows(258));  // "no" is not a choice, and " no" needs two spaces
  EXPECT_FALSE(strips.allows(259));
  EXPECT_TRUE(strips.allows(261));
  expect_mask_of_each(strips, *trie);
  ASSERT_TRUE(strips.advance(' '));  // the space that is dropped
  EXPECT_EQ(strips.text(), "");
  expect_mask_of_each(strips, *trie);
  EXPECT_TRUE(strips.advance(258));
  EXPECT_TRUE(strips.must_end());
}

}  // namespace
}  // namespace skein::grammar
