#include "grammar/regex.h"

#include <gtest/gtest.h>
#include <random>
#include <regex>

#include "grammar/char_set.h"
#include "grammar/choice.h"
#include "grammar/decimal.h"
#include "grammar/grammar_helpers.h"
#include "grammar/json_text.h"
#include "grammar/regex_parser.h"

namespace skein::grammar {
namespace {

ExprId parse(RegexStore& store, std::string_view pattern, bool anchored = true,
             Spelling spelling = Spelling::kUtf8) {
  auto result = parse_pattern(store, pattern, {.spelling = spelling, .anchored = anchored});
  EXPECT_TRUE(result.ok()) << pattern << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : kNothing;
}

bool matches(std::string_view pattern, std::string_view text, bool anchored = true) {
  RegexStore store;
  const ExprId e = parse(store, pattern, anchored);
  return store.matches(e, text);
}

TEST(Regex, WhatHasBeenFoundIsForgotten) {
  RegexStore store;
  const ExprId all = store.repeat(json_char(store), 0, kUnbounded);
  for (const std::string_view pattern : {"a[bc]{2,30}d", "ab|x+y", "(ab)*c"}) {
    ExprId rest = parse(store, pattern, false, Spelling::kJson);
    for (const char byte : std::string_view("a é \\n aabcbcdxyabc")) {
      EXPECT_NE(rest, all) << pattern;
      rest = store.derivative(rest, static_cast<uint8_t>(byte));
      if (rest == all) break;
    }
    EXPECT_EQ(rest, all) << pattern;
  }
  EXPECT_EQ(parse(store, "a*", false, Spelling::kJson), all);
  EXPECT_TRUE(matches("b{3}", "abbab bbbé", false));
  EXPECT_FALSE(matches("b{3}", "abbab bb", false));
}

TEST(Regex, RowsOfCharacters) {
  RegexStore store;
  const ExprId character = json_char(store), a = store.byte('a');
  EXPECT_TRUE(store.is_row_of(store.concat(store.repeat(a, 2, 9), store.literal("xy")), character));
  EXPECT_TRUE(store.is_row_of(store.concat(character, store.repeat(character, 0, 7)), character));
  EXPECT_FALSE(store.is_row_of(store.literal("a\""), character));
  EXPECT_FALSE(store.is_row_of(kAnything, character));
  EXPECT_FALSE(store.is_row_of(kNothing, character)) << "which nobody asks";
  EXPECT_FALSE(store.is_row_of(store.negation(a), character));
  EXPECT_FALSE(store.is_row_of(store.either(a, store.concat(a, store.byte('"'))), character));
}

TEST(Regex, EqualExpressionsAreOne) {
  RegexStore store;
  const ExprId a = store.byte('a'), b = store.byte('b');
  EXPECT_EQ(store.either(a, b), store.byte_class(ByteSet::of("ab")));
  EXPECT_EQ(store.either(a, store.either(b, a)), store.either(b, a));
  EXPECT_EQ(
      store.both(store.literal("ab"), store.repeat(store.byte_class(ByteSet::of("abc")), 2, 2)),
      store.literal("ab"));
  EXPECT_EQ(store.negation(store.negation(a)), a);
  EXPECT_EQ(store.both(a, store.negation(a)), kNothing);
  EXPECT_EQ(store.either(store.repeat(a, 0, 3), store.repeat(a, 2, 9)), store.repeat(a, 0, 9));
}

TEST(Regex, CountersAreNotCopies) {
  RegexStore store;
  ExprId e = store.repeat(store.byte('a'), 999'999, 1'000'000);
  EXPECT_LT(store.size(), 10u);
  for (int i = 0; i < 1000; ++i) e = store.derivative(e, 'a');
  EXPECT_LT(store.size(), 2100u);
  EXPECT_FALSE(store.nullable(e));
}

Answer begins_all(RegexStore& store, ExprId e, ExprId words) {
  uint64_t work = 0, again = 0;
  const Answer answer = store.begins_all(e, words, work);
  EXPECT_EQ(store.begins_all(e, words, again), answer);
  EXPECT_EQ(work, again) << "what is known costs as much as what is not";
  return answer;
}

TEST(Regex, QuestionsAboutLanguages) {
  RegexStore store;
  const ExprId words = parse(store, "[a-z]+"), numbers = parse(store, "[0-9]+");
  EXPECT_EQ(store.disjoint(words, numbers), Answer::kYes);
  EXPECT_EQ(store.disjoint(words, parse(store, "[x-z0-9]{3}")), Answer::kNo);
  EXPECT_EQ(store.contains(parse(store, "[a-z0-9]*"), words), Answer::kYes);
  EXPECT_EQ(store.contains(words, parse(store, "[a-z0-9]*")), Answer::kNo);
  EXPECT_EQ(store.live(store.both(parse(store, "(ab)*"), parse(store, "a(ba)*b|c"))), Answer::kYes);
  EXPECT_EQ(store.live(store.both(parse(store, "(aa)+"), parse(store, "a(aa)*"))), Answer::kNo);
  EXPECT_EQ(begins_all(store, parse(store, "[a-z]*!"), parse(store, "[a-f]{1,9}")), Answer::kYes);
  EXPECT_EQ(begins_all(store, parse(store, "[a-z]{0,4}!"), parse(store, "[a-f]{1,9}")),
            Answer::kNo);
  // What is endless begins alike without finitely many texts, and only then.
  const ExprId letters = parse(store, "[a-z]*"), begins = parse(store, "[a-f]*");
  const auto without = [&](const char* pattern) {
    return store.concat(store.both(letters, store.negation(parse(store, pattern))),
                        store.byte('!'));
  };
  EXPECT_EQ(begins_all(store, without("abc|de|f{1,9}"), begins), Answer::kYes);
  EXPECT_EQ(begins_all(store, without("ab[a-z]*"), begins), Answer::kNo);
  EXPECT_EQ(
      begins_all(store, store.both(parse(store, "[a-z]{0,9}"), store.negation(parse(store, "abc"))),
                 begins),
      Answer::kNo);
  const ExprId plain =
      one_char(store, {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}}, Spelling::kUtf8);
  for (const ExprId one : {json_char(store), json_free_char(store)}) {  // LexerTokens rests on it
    EXPECT_EQ(
        begins_all(store, store.repeat(one, 0, kUnbounded), store.repeat(plain, 0, kUnbounded)),
        Answer::kYes);
  }
  // Too large to say: 5,000 expressions are not enough for 7 counters of 40.
  std::string hard;
  for (int i = 0; i < 7; ++i)
    hard += "(?=.*" + std::string(1, static_cast<char>('a' + i)) + ".{40}$)";
  EXPECT_EQ(store.live(parse(store, "^" + hard + "[a-g]{41,}$", false)), Answer::kUnknown);
  EXPECT_TRUE(store.question_failed());
}

TEST(Regex, TheLimitOfExpressions) {
  const auto make = [](uint32_t limit) {
    RegexStore store(limit);
    const ExprId e = parse_pattern(store, "abc[0-9]{2,3}|x.y", {.anchored = true}).ok() ? 1 : 0;
    return std::pair(store.full(), e);
  };
  uint32_t needed = 0;
  while (make(needed + 8).first) ++needed;
  EXPECT_EQ(make(needed + 8), std::pair(false, ExprId{1}));
  EXPECT_EQ(make(needed + 7), std::pair(true, ExprId{0}));
}

TEST(Regex, Utf8RangesTakeWholeCharactersOnly) {
  RegexStore store;
  const ExprId e = one_char(store, CharSet{{0x7F, 0x801}, {0xD000, 0x10010}}, Spelling::kUtf8);
  for (uint32_t c = 0x70; c < 0x10100; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const bool inside = (c >= 0x7F && c <= 0x801) || (c >= 0xD000 && c <= 0x10010);
    ASSERT_EQ(store.matches(e, text), inside) << c;
  }
  EXPECT_FALSE(store.matches(e, "\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(store.matches(e, "\xC1\xBF"));      // longer than it need be
}

TEST(RegexParser, WhatEcmaWrites) {
  EXPECT_TRUE(matches("a|b*c?", "bbc"));
  EXPECT_TRUE(matches("[^\\d\\s]\\w{2,3}", "x_9"));
  EXPECT_FALSE(matches("[^\\d\\s]\\w{2,3}", "1ab"));
  EXPECT_TRUE(matches("\\u00e9\\x41\\u{1F600}\\cA\\0", std::string("éA😀\x01\0", 9)));
  EXPECT_TRUE(matches("(?<year>\\d{4})-(?:0[1-9])", "2024-05"));
  EXPECT_TRUE(matches("a{,3}x{2", "a{,3}x{2"));  // no quantifiers
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_FALSE(matches(".", "\xE2\x80\xA8"));
  EXPECT_TRUE(matches("[a-]+", "-a-"));
  EXPECT_TRUE(matches("a+?b", "aab"));
}

TEST(RegexParser, AnchorsAndLookAheads) {
  EXPECT_TRUE(matches("b", "abc", false));
  EXPECT_FALSE(matches("^b", "abc", false));
  EXPECT_TRUE(matches("^ab|c$", "xxc", false));
  EXPECT_FALSE(matches("^ab|c$", "xxcx", false));
  EXPECT_TRUE(matches("^(?=.*\\d)(?!.*x)[a-z0-9]+$", "ab1", false));
  EXPECT_FALSE(matches("^(?=.*\\d)(?!.*x)[a-z0-9]+$", "ab", false));
  EXPECT_FALSE(matches("^(?=.*\\d)(?!.*x)[a-z0-9]+$", "x1", false));
  EXPECT_TRUE(matches("a(?!b)", "ab ac", false));
  EXPECT_FALSE(matches("a(?!b)", "ab ab", false));
  EXPECT_TRUE(matches("^$", "", false));
  EXPECT_FALSE(matches("a^b", "ab", false));
  EXPECT_TRUE(matches("(^a|b)c", "bc", false));
}

// A look-ahead that contradicts what follows it leaves no way on, so its beginning is not taken.
TEST(RegexParser, LookAheadsLeaveNoDeadEnds) {
  struct Case {
    const char *pattern, *dead, *taken;
  };
  for (const Case& one : std::vector<Case>{
           {"a(?=b)c|e", "a", "e"},
           {"(?:xa(?=b)c|e)f", "x", "ef"},
           {"a(?!b)bc|ad", "ab", "ad"},
           {"(?=.d)(?:(?:ab|ac)(?=z)y|adx|bd)", "ab", "adx"},
           {"(?!x)a(?=(?:b(?!c)c|d))[a-z]|e", "ab", "ad"},
           {"(?=a|.*q)(?:a(?:b(?=c)d|e)|xq)", "ab", "ae"},
       }) {
    SCOPED_TRACE(one.pattern);
    auto rules = regex_rules(one.pattern);
    ASSERT_TRUE(rules.ok()) << rules.error().message;
    const auto grammar = testing::compiled(std::move(*rules));
    EXPECT_FALSE(Matcher(grammar).advance_bytes(one.dead));
    EXPECT_TRUE(testing::accepts(grammar, one.taken));
  }
}

TEST(RegexParser, RefusesByName) {
  RegexStore store;
  for (const auto& [pattern, reason] :
       std::vector<std::pair<std::string, std::string>>{{"(a)\\1", "back references"},
                                                        {"(?<n>a)\\k<n>", "back references"},
                                                        {"(?<=a)b", "look-behind"},
                                                        {"\\bx", "word boundaries"},
                                                        {"\\p{L}", "property classes"},
                                                        {"(a", "missing )"},
                                                        {"a)", "unmatched )"},
                                                        {"[b-a]", "out of order"},
                                                        {"a{3,2}", "out of order"},
                                                        {"*a", "nothing to repeat"},
                                                        {"a**", "nothing to repeat"},
                                                        {"[a", "missing ]"},
                                                        {"a\\", "at the end"},
                                                        {"a{1000001}", "repeat count"},
                                                        {"\xFF", "not UTF-8"},
                                                        {"(^a)*", "repeated anchor"}}) {
    const auto result = parse_pattern(store, pattern, {});
    ASSERT_FALSE(result.ok()) << pattern;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
  std::string deep(kMaxPatternDepth, '(');
  const std::string shut(kMaxPatternDepth, ')');
  EXPECT_TRUE(parse_pattern(store, deep + "a" + shut, {}).ok());
  EXPECT_FALSE(parse_pattern(store, "(" + deep + "a" + shut + ")", {}).ok());
  EXPECT_TRUE(parse_pattern(store, std::string(kMaxPatternBytes, 'a'), {}).ok());
  EXPECT_FALSE(parse_pattern(store, std::string(kMaxPatternBytes + 1, 'a'), {}).ok());
}

// Random patterns against the standard library's matcher, over all short texts of two letters.
TEST(RegexParser, RandomPatternsAgainstAnotherMatcher) {
  std::mt19937 random(7);
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (depth == 0 ? random() % 3 : random() % 9) {
      case 0:
        return "a";
      case 1:
        return "b";
      case 2:
        return "[ab]";
      case 3:
        return make(depth - 1) + make(depth - 1);
      case 4:
        return "(?:" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 5:
        return "(?:" + make(depth - 1) + ")*";
      case 6:
        return "(?:" + make(depth - 1) + ")?";
      case 7:
        return "(?:" + make(depth - 1) + "){1,3}";
      default:
        return make(depth - 1) + make(depth - 1) + make(depth - 1);
    }
  };
  size_t compared = 0, matched = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string pattern = make(3);
    const std::regex other(pattern, std::regex::ECMAScript);
    RegexStore store;
    const ExprId whole = parse(store, pattern), part = parse(store, pattern + "$", false);
    const ExprId complement = store.negation(whole);
    for (int length = 0; length <= 6; ++length) {
      for (int bits = 0; bits < 1 << length; ++bits) {
        std::string text;
        for (int k = 0; k < length; ++k) text += bits >> k & 1 ? 'a' : 'b';
        const bool expected = std::regex_match(text, other);
        ASSERT_EQ(store.matches(whole, text), expected) << pattern << " on " << text;
        ASSERT_EQ(store.matches(complement, text), !expected) << pattern << " on " << text;
        ASSERT_EQ(store.matches(part, text), std::regex_search(text, std::regex(pattern + "$")))
            << pattern << " in " << text;
        ++compared;
        matched += expected;
      }
    }
  }
  EXPECT_EQ(compared, 300u * 127);
  EXPECT_GT(matched, 1000u);
}

TEST(JsonText, NumbersWithinBounds) {
  const auto text_matches = [](const NumberSet& set, const std::string& text) {
    RegexStore store;
    const auto e = number_expression(store, set);
    return e && store.matches(*e, text);
  };
  std::mt19937 random(3);
  size_t inside = 0;
  for (int i = 0; i < 400; ++i) {
    NumberSet set;
    const auto number = [&] {
      const int places = static_cast<int>(random() % 3);
      std::string text = std::to_string(static_cast<int>(random() % 300) - 150);
      if (places > 0) text += "." + std::to_string(random() % 100);
      return Decimal::parse(text).value();
    };
    if (random() % 4) set.lo = number();
    if (random() % 4) set.hi = number();
    set.lo_open = random() % 2;
    set.hi_open = random() % 2;
    set.integers = random() % 3 == 0;
    if (random() % 3 == 0) set.multiples = {Decimal::parse(random() % 2 ? "7" : "0.25").value()};
    RegexStore store;
    const auto e = number_expression(store, set);
    ASSERT_TRUE(e);
    for (int k = 0; k < 60; ++k) {
      const Decimal value = number();
      // A multiple may be written with a point only where its unit has one.
      const bool expected = has_value(set, value);
      ASSERT_EQ(store.matches(*e, value.to_string()), expected)
          << value.to_string() << " lo " << (set.lo ? set.lo->to_string() : "") << " hi "
          << (set.hi ? set.hi->to_string() : "");
      inside += expected;
    }
  }
  EXPECT_GT(inside, 2000u);
  NumberSet long_bound;
  long_bound.lo = Decimal::parse("9223372036854775807");
  EXPECT_TRUE(text_matches(long_bound, "9223372036854775807"));
  EXPECT_FALSE(text_matches(long_bound, "9223372036854775806"));
}

TEST(JsonText, TheScalarThatHasJustEnded) {
  EXPECT_EQ(last_scalar(R"({"a\"b")"), R"("a\"b")");
  EXPECT_EQ(last_scalar(R"(["\\")"), R"("\\")");
  EXPECT_EQ(last_scalar("[1,-2.5"), "-2.5");
  EXPECT_EQ(last_scalar("[null"), "null");
}

}  // namespace
}  // namespace skein::grammar
