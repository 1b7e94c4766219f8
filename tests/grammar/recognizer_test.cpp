#include <gtest/gtest.h>

#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"
#include "grammar/lark.h"

namespace skein::grammar {
namespace {

using testing::accepts;
using testing::compiled;

std::shared_ptr<CompiledGrammar> gbnf(std::string_view text) {
  auto rules = gbnf_rules(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  return compiled(rules.ok() ? std::move(*rules) : Rules{});
}

std::shared_ptr<CompiledGrammar> lark(std::string_view text) {
  auto rules = lark_rules(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  return compiled(rules.ok() ? std::move(*rules) : Rules{});
}

TEST(Recognizer, ContextFreeAndAmbiguous) {
  const auto nested = gbnf("root ::= \"(\" root \")\" | \"\"");
  EXPECT_TRUE(accepts(nested, "((()))"));
  EXPECT_FALSE(accepts(nested, "((())"));
  const auto left = gbnf("root ::= root \"+\" root | [0-9]+");
  EXPECT_TRUE(accepts(left, "1+22+3+4+5+6+7+8"));
  EXPECT_FALSE(accepts(left, "1+"));
  const auto palindromes = gbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?");
  EXPECT_TRUE(accepts(palindromes, "abbababba"));
  EXPECT_FALSE(accepts(palindromes, "abbabaabba"));
}

TEST(Recognizer, NoLongestMatch) {
  const auto grammar = gbnf("root ::= [a-z]+ \"end\" | [a-z]* \"x\" [a-z]");
  EXPECT_TRUE(accepts(grammar, "weekend"));
  EXPECT_TRUE(accepts(grammar, "endend"));
  EXPECT_FALSE(accepts(grammar, "end"));
  EXPECT_TRUE(accepts(grammar, "xx"));
}

TEST(Recognizer, EmptyRulesAndRepeats) {
  const auto grammar =
      gbnf("root ::= a? b* (a b){2,3} c\na ::= \"a\" | \"\"\nb ::= \"b\"?\nc ::= \"c\"{3}");
  EXPECT_TRUE(accepts(grammar, "ababccc"));
  EXPECT_TRUE(accepts(grammar, "ccc"));
  EXPECT_FALSE(accepts(grammar, "cc"));
  const auto counted = gbnf("root ::= pair{2,4}\npair ::= \"x\" | \"(\" root \")\"");
  EXPECT_FALSE(accepts(counted, "x"));
  EXPECT_TRUE(accepts(counted, "x(xx)xx"));
  EXPECT_FALSE(accepts(counted, "xxxxx"));
  EXPECT_FALSE(accepts(counted, "x(x)x"));
}

TEST(Recognizer, ListsDoNotGrowStates) {
  auto grammar = compiled(testing::schema_rules(R"({"type":"array","items":{"type":"integer"}})"));
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.advance_bytes("[1"));
  std::string more;
  for (int i = 0; i < 50'000; ++i) more += ",1";
  ASSERT_TRUE(matcher.advance_bytes(more + "]"));
  EXPECT_TRUE(matcher.must_end());
}

// What stands in a list may be a rule, whose end is then behind it.
TEST(Recognizer, ListsOfRulesDoNotGrowStates) {
  for (const char* grammar : {"root ::= item*\nitem ::= [a-z] \"\\n\"",
                              "root ::= (item \"\\n\")+\nitem ::= [a-z] | [0-9]",
                              "root ::= item root | item\nitem ::= w \"\\n\"\nw ::= [a-z]"}) {
    Matcher matcher(gbnf(grammar));
    std::string text;
    for (int i = 0; i < 20'000; ++i) text += "a\n";
    EXPECT_TRUE(matcher.advance_bytes(text)) << grammar;
    EXPECT_TRUE(matcher.may_end()) << grammar;
  }
}

// Repetitions of what may be empty say the same in many ways, of which one is enough.
TEST(Recognizer, WhatIsEmptyIsNotCounted) {
  const auto grammar =
      gbnf("root ::= a? b* (a b){88,} c\na ::= \"a\" | \"\"\nb ::= \"\"b?\nc ::= \"c\"{3}");
  for (const size_t count : {size_t{0}, size_t{1}, size_t{200}, size_t{5'000}}) {
    EXPECT_TRUE(accepts(grammar, std::string(count, 'a') + "ccc")) << count;
    EXPECT_FALSE(accepts(grammar, std::string(count, 'a') + "cc")) << count;
  }
  EXPECT_TRUE(accepts(gbnf("root ::= e{3,9}\ne ::= \"\" e?"), ""));
  EXPECT_FALSE(accepts(gbnf("root ::= e{3,9}\ne ::= \"\" e?"), "x"));
}

TEST(Recognizer, EndsWhereNothingCanFollow) {
  auto rules = choice_rules({"yes", "no", "nothing"});
  ASSERT_TRUE(rules.ok());
  Matcher matcher(compiled(std::move(*rules)));
  EXPECT_FALSE(matcher.may_end());
  ASSERT_TRUE(matcher.advance_bytes("no"));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.must_end());
  Matcher fork = matcher;
  EXPECT_FALSE(fork.advance_bytes("x"));
  EXPECT_TRUE(fork.may_end());  // nothing has changed
  ASSERT_TRUE(fork.advance_bytes("thing"));
  EXPECT_TRUE(fork.must_end());
  EXPECT_FALSE(matcher.must_end());
  EXPECT_EQ(matcher.text(), "no");
}

TEST(Recognizer, RowsThatOutgrowTheirLimitFail) {
  const auto optional_letters = [](int count) {
    std::string text = "root ::= ";
    for (int i = 0; i < count; ++i) text += "r" + std::to_string(i) + "? ";
    for (int i = 0; i < count; ++i) {
      text += "\nr" + std::to_string(i) + " ::= \"" + std::to_string(i) + ";\"";
    }
    return text + "\n";
  };
  Matcher fits(gbnf(optional_letters(400)));
  EXPECT_TRUE(fits.advance_bytes("7;399;"));
  Matcher too_many(gbnf(optional_letters(1200)));
  EXPECT_FALSE(too_many.advance_bytes("7;1199;"));
  EXPECT_TRUE(too_many.failed());
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"root ::= \"a", "unterminated literal at 1:12"},
           {"root ::= a\n", "'a' is not defined"},
           {"a ::= \"x\"\n", "no rule 'root'"},
           {"root = \"x\"", "expected ::= at 1:6"},
           {"root ::= (\"x\"", "expected )"},
           {"root ::= [z-a]", "range out of order"},
           {"root ::= \"x\"{3,2}", "numbers out of order"},
           {"root ::= \"x\"{1000001}", "repeat count of 1000001, at most 1000000"},
           {"root ::= !<[12]>", "named by what they are not"}}) {
    const auto result = gbnf_rules(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
  const std::string open(kMaxGrammarDepth + 1, '('), shut(kMaxGrammarDepth + 1, ')');
  EXPECT_TRUE(gbnf_rules("root ::= " + open.substr(1) + "\"a\"" + shut.substr(1)).ok());
  EXPECT_FALSE(gbnf_rules("root ::= " + open + "\"a\"" + shut).ok());
  EXPECT_FALSE(gbnf_rules(std::string(kMaxGrammarBytes + 1, ' ')).ok());
}

TEST(Gbnf, WhatCannotEndIsCut) {
  EXPECT_TRUE(accepts(gbnf("root ::= loop | \"a\"\nloop ::= \"x\" loop\n"), "a"));
  EXPECT_FALSE(accepts(gbnf("root ::= loop | \"a\"\nloop ::= \"x\" loop\n"), "x"));
  auto rules = gbnf_rules("root ::= \"x\" root");
  ASSERT_TRUE(rules.ok());
  const auto grammar = compile(std::move(*rules), testing::byte_trie());
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().code, FormCode::kUnsatisfiableSchema);
}

TEST(Lark, RulesTerminalsAndDirectives) {
  const auto grammar = lark(R"lark(
// a calculator
start: sum
?sum: product (("+" | "-") product)*
product: atom ("*" atom)* -> times
atom: NUMBER | "(" sum ")" | NAME
NUMBER: /[0-9]+(\.[0-9]+)?/
NAME: LETTER (LETTER | "_")~0..7
LETTER: "a".."z" | /[A-Z]/
%import common.WS
%ignore WS
)lark");
  EXPECT_TRUE(accepts(grammar, "1 + foo_B*(2.5-x)"));
  EXPECT_FALSE(accepts(grammar, "1 + "));
  EXPECT_FALSE(accepts(grammar, "abcdefghi"));
  EXPECT_TRUE(accepts(lark("start: \"Hello\"i [\"!\"]\n"), "hELLO!"));
  EXPECT_TRUE(accepts(lark("start: A+ \"b\"~2\nA.2: /x/i\n"), "xXbb"));
}

TEST(Lark, RefusesByName) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"start: b", "'b' is not defined"},
           {"a: \"x\"", "no rule 'start'"},
           {"start: A\nA: B\nB: A", "is made of itself"},
           {"start: /a(/", "missing )"},
           {"start: a{b}\na: \"x\"", "templates"},
           {"%declare X\nstart: \"a\"", "%declare"},
           {"%import foo.BAR\nstart: \"a\"", "only common"},
           {"start: <special>", "not a control token"},
           {"start: \"a", "unterminated"},
           {"start: (\"a\"", "expected )"}}) {
    const auto result = lark_rules(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
}

TEST(Choice, ManyTextsAreOneTree) {
  std::vector<std::string> texts;
  for (int i = 0; i < 50'000; ++i) texts.push_back("item-" + std::to_string(i));
  auto rules = choice_rules(texts);
  ASSERT_TRUE(rules.ok());
  const auto grammar = compiled(std::move(*rules));
  EXPECT_TRUE(accepts(grammar, "item-49999"));
  EXPECT_FALSE(accepts(grammar, "item-50000"));
  EXPECT_FALSE(choice_rules(std::vector<std::string>(kMaxChoices + 1, "a")).ok());
}

// Else a form that outgrew its budget once would forget at every call from then on.
TEST(Recognizer, WhatItForgetsIsGivenBack) {
  auto rules = gbnf_rules("root ::= \"(\" root \")\" | \"\"");
  ASSERT_TRUE(rules.ok());
  Recognizer recognizer(std::move(*rules));
  recognizer.forget();
  const uint64_t at_first = recognizer.bytes();
  StateId state = recognizer.start();
  for (int i = 0; i < 1'500; ++i) state = recognizer.step(state, '(');
  ASSERT_NE(state, kDeadState);
  ASSERT_GT(recognizer.bytes(), 20 * at_first);
  recognizer.forget();
  EXPECT_LE(recognizer.bytes(), at_first);
}

// A derivative of thousands of alternatives costs as many lookups, so they are charged to the mask.
TEST(Recognizer, WideAlternativesAreChargedByTheirWidth) {
  std::string pattern = "(?:[^q]{2}";
  for (int i = 5; i < 15'000; i += 3) pattern += fmt::format("|[^q]{{{}}}", i);
  auto rules = regex_rules(pattern + ")");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  std::vector<std::string> tokens = testing::byte_tokens();
  for (size_t length = 2; length < 100; ++length) tokens.emplace_back(length, 'a');
  Matcher matcher(compiled(std::move(*rules), testing::trie_of_tokens(std::move(tokens))));
  EXPECT_EQ(matcher.mask(), nullptr) << "more than a mask may take";
  EXPECT_TRUE(matcher.failed());
}

}  // namespace
}  // namespace skein::grammar
