// Work that a form or an answer can cause is counted, bounded, and the same whatever is cached.
#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"
#include "grammar/string_tokens.h"

namespace skein::grammar {
namespace {

using testing::compiled;
using testing::schema_rules;

constexpr GrammarOptions kRoomy{.automaton_bytes = uint64_t{1} << 40, .mask_bytes = 1 << 20};
constexpr GrammarOptions kSmall{.automaton_bytes = 1 << 16, .mask_bytes = 1};

Rules gbnf_or_nothing(std::string_view text) {
  auto rules = gbnf_rules(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  return rules.ok() ? std::move(*rules) : Rules{};
}

// How many pieces are taken until the matcher fails; `most` if it never does.
size_t taken_until_failure(const Rules& rules, const GrammarOptions& options, size_t most,
                           const std::function<std::string(size_t)>& piece) {
  Rules copy = rules;
  copy.regex = std::make_shared<RegexStore>(*rules.regex);
  Matcher matcher(compiled(std::move(copy), testing::byte_trie(), options));
  for (size_t i = 0; i < most; ++i) {
    if (matcher.advance_bytes(piece(i))) continue;
    EXPECT_TRUE(matcher.failed()) << "not taken: " << piece(i);
    EXPECT_EQ(matcher.mask(), nullptr);
    return i;
  }
  EXPECT_FALSE(matcher.failed());
  return most;
}

// What is open inside each other is the state of a request.
TEST(Work, TheStateOfARequestIsBounded) {
  const Rules rules = gbnf_or_nothing("root ::= \"(\" root \")\" | \"\"");
  const auto piece = [](size_t) { return std::string("("); };
  const size_t depth = taken_until_failure(rules, kRoomy, 100'000, piece);
  EXPECT_GT(depth, 1'000u);
  EXPECT_LT(depth, kMaxStateBytes / 16);
  EXPECT_EQ(taken_until_failure(rules, kSmall, 100'000, piece), depth) << "with little cached";
}

TEST(Work, TextsThatAListHasSeenAreBounded) {
  const Rules rules =
      schema_rules(R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})",
                   {.strict = true, .white_space = ""});
  const auto piece = [](size_t i) { return fmt::format("{}\"{:x<500}\"", i == 0 ? '[' : ',', i); };
  const size_t items = taken_until_failure(rules, kRoomy, 1'000, piece);
  EXPECT_EQ(items, kMaxStateBytes / (16 + 502)) << "quotes, text and what an entry takes";
  EXPECT_EQ(taken_until_failure(rules, kSmall, 1'000, piece), items) << "with little cached";
  // One text alone is as bounded.
  const auto one = [](size_t bytes) {
    return [bytes](size_t) { return "[\"" + std::string(bytes, 'x') + "\""; };
  };
  EXPECT_EQ(taken_until_failure(rules, kRoomy, 1, one(kMaxStateBytes - 200)), 1u);
  EXPECT_EQ(taken_until_failure(rules, kRoomy, 1, one(kMaxStateBytes)), 0u);
}

// A counted string makes a new state at every byte. What is forgotten on the way is not read again.
TEST(Work, LongCountedStringsAreReadOnce) {
  const auto work_of = [](size_t bytes, uint64_t& forgotten) {
    const auto grammar = compiled(schema_rules(R"({"type":"string","maxLength":100000})"),
                                  testing::byte_trie(), {.automaton_bytes = 1 << 18});
    Matcher matcher(grammar);
    EXPECT_TRUE(matcher.advance_bytes("\""));
    for (size_t i = 0; i < bytes; i += 10) EXPECT_TRUE(matcher.advance_bytes("0123456789"));
    forgotten = grammar->times_forgotten();
    return grammar->expression_work();
  };
  uint64_t few = 0, many = 0;
  const uint64_t at_10k = work_of(10'000, few), at_80k = work_of(80'000, many);
  EXPECT_GT(few, 5u);
  EXPECT_GT(many, 7 * few);
  EXPECT_LT(at_80k, 9 * at_10k);
}

TEST(Work, ListsOfDistinctNumbersAreReadOnce) {
  const auto grammar =
      compiled(schema_rules(R"({"type":"array","uniqueItems":true,"items":{"type":"integer"}})"),
               testing::byte_trie(), {.automaton_bytes = 1 << 18});
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.advance_bytes("[1000"));
  for (int i = 1001; i < 1600; ++i) ASSERT_TRUE(matcher.advance_bytes("," + std::to_string(i)));
  EXPECT_GT(grammar->times_forgotten(), 10u);
  EXPECT_FALSE(Matcher(matcher).advance_bytes(",1300,"));  // still known, all of them
  EXPECT_FALSE(Matcher(matcher).advance_bytes(",1599]"));
  EXPECT_TRUE(Matcher(matcher).advance_bytes(",1600]"));
}

// Who comes first must not use up what the others may: an automaton that is full is forgotten.
TEST(Work, OneRequestDoesNotFailForWhatOthersHaveCached) {
  const auto grammar = compiled(schema_rules(R"({"type":"string","maxLength":1000000})"),
                                testing::byte_trie(), kRoomy);
  Matcher long_one(grammar), other(grammar);
  const std::string piece(1'000, 'a');
  ASSERT_TRUE(long_one.advance_bytes("\"") && other.advance_bytes("\"b"));
  for (int i = 0; i < 220; ++i) ASSERT_TRUE(long_one.advance_bytes(piece)) << i;
  EXPECT_GT(grammar->times_forgotten(), 0u) << "expressions are bounded whatever the cache is";
  EXPECT_TRUE(other.advance_bytes("c\""));
  EXPECT_TRUE(other.must_end());
  EXPECT_FALSE(long_one.may_end());
}

// All terminals that have begun are charged together, and before they are looked at.
TEST(Work, ManyTerminalsAtOnceAreOneMask) {
  std::vector<std::string> tokens = testing::byte_tokens();
  for (int i = 0; i < 5'000; ++i) tokens.push_back(fmt::format("x{:x}", i * 7919 % 65536));
  const auto trie = testing::trie_of_tokens(std::move(tokens));
  const auto grammar_of = [](int patterns) {
    std::string text = "root ::= p0";
    for (int i = 1; i < patterns; ++i) text += fmt::format(" | p{}", i);
    for (int i = 0; i < patterns; ++i) text += fmt::format("\np{} ::= [a-z0-9]+ \"!{}\"", i, i);
    return text;
  };
  Matcher few(compiled(gbnf_or_nothing(grammar_of(20)), trie));
  EXPECT_NE(few.mask(), nullptr);
  std::string schema = R"({"anyOf":[)";
  for (int i = 0; i < 250; ++i) {
    schema += fmt::format(
        R"({}{{"type":"object","properties":{{"k":{{"type":"string","pattern":"^[^{}]+{}$"}}}},"required":["k"]}})",
        i > 0 ? "," : "", static_cast<char>('a' + i % 20), i);
  }
  Matcher many(compiled(schema_rules(schema + "]}"), trie));
  ASSERT_TRUE(many.advance_bytes("{\"k\":\""));
  EXPECT_EQ(many.mask(), nullptr) << "250 walks of a vocabulary are more than a mask may take";
  EXPECT_TRUE(many.failed());
}

// A row of Earley's that completes everything with everything.
TEST(Work, AmbiguityIsBoundedByWhatARowTakes) {
  const Rules rules = gbnf_or_nothing("root ::= root root root | root root | \"a\" | \"\"");
  const auto piece = [](size_t) { return std::string("a"); };
  const size_t taken = taken_until_failure(rules, kRoomy, 5'000, piece);
  EXPECT_GT(taken, 50u);
  EXPECT_LT(taken, 2'000u);
  EXPECT_EQ(taken_until_failure(rules, kSmall, 5'000, piece), taken) << "with little cached";
}

// Limits of a compilation count what it does: inputs of a mebibyte end at them.
TEST(Work, LargeSchemasEndAtTheUnitsOfACompilation) {
  const auto members = [](size_t count, const std::function<std::string(size_t)>& schema) {
    std::string text = R"({"type":"object","properties":{)";
    for (size_t i = 0; i < count; ++i) {
      text += fmt::format("{}\"p{}\":{}", i > 0 ? "," : "", i, schema(i));
    }
    return text + "}}";
  };
  const auto work_of = [](const std::string& schema, std::string& error) {
    Rules rules;
    auto start = append_json_schema(rules, schema, {.strict = true});
    error = start.ok() ? "" : start.error().message;
    return rules.regex->work();
  };
  struct Large {
    std::string schema;
    bool taken;
  };
  const auto bounded = [](size_t i) {
    return fmt::format(R"({{"type":"number","minimum":{}.37,"maximum":{}.91}})", i, i * 977);
  };
  const auto multiple = [](size_t i) {
    return fmt::format(R"({{"type":"number","multipleOf":{}.1}})", i * 7);
  };
  const auto length = [](size_t i) {
    return fmt::format(R"({{"type":"string","maxLength":{}}})", 1000 + i);
  };
  // Many combinations of few members are no reason to refuse.
  std::string dependencies = members(100, [](size_t) { return "{}"; });
  dependencies.pop_back();
  dependencies += R"(,"dependentRequired":{)";
  for (size_t i = 0; i < 99; ++i) {
    dependencies += fmt::format("{}\"p{}\":[\"p{}\"]", i > 0 ? "," : "", i, i + 1);
  }
  dependencies += "}}";
  std::string constants = R"({"const":[)";
  for (size_t i = 0; i < 24'000; ++i)
    constants += fmt::format("{}{{\"a{}\":{}}}", i > 0 ? "," : "", i, i);
  for (const Large& one :
       {Large{members(kMaxProperties, length), true}, Large{members(1'000, bounded), true},
        Large{members(kMaxProperties, bounded), false}, Large{members(300, multiple), true},
        Large{members(kMaxProperties, multiple), false}, Large{constants + "]}", false},
        Large{dependencies, true}}) {
    std::string error;
    const uint64_t work = work_of(one.schema, error);
    EXPECT_LT(work, kMaxCompileUnits + kMaxCompileUnits / 10) << one.schema.substr(0, 80);
    const size_t tail = error.find(" units to compile so far, at most 1000000");
    EXPECT_EQ(error.empty(), one.taken) << error << ": " << one.schema.substr(0, 80);
    EXPECT_EQ(error.empty() || tail != std::string::npos, true) << error;
  }
}

// A multiple is a matter of some digits, so that no search needs to visit all remainders: neither
// for the first mask nor where hardly any digit is left.
TEST(Work, WhetherAMultipleCanFollowIsFoundStraight) {
  for (const char* what :
       {R"("multipleOf":9.97)", R"("multipleOf":2.01)", R"("multipleOf":99999.9989)",
        R"("multipleOf":104729)", R"("multipleOf":999999937)", R"("multipleOf":0.0000999983)",
        R"("not":{"multipleOf":9.97})", R"("multipleOf":9.97,"minimum":3,"maximum":123456.5)"}) {
    SCOPED_TRACE(what);
    Rules rules = schema_rules(fmt::format(R"({{"type":"number",{}}})", what), {.strict = true});
    const auto grammar = compiled(std::move(rules));
    Matcher matcher(grammar);
    ASSERT_NE(matcher.mask(), nullptr);
    EXPECT_LT(grammar->expression_work(), 160'000u) << "for the first mask";
    // Any digit that may come.
    for (int digit = 6; matcher.text().size() < 16 && digit < 16; ++digit) {
      const char byte = static_cast<char>('0' + digit % 10);
      if (!matcher.advance_bytes({&byte, 1})) continue;
      ASSERT_NE(matcher.mask(), nullptr) << matcher.text();
      digit = static_cast<int>(matcher.text().size()) % 9;
    }
    EXPECT_LT(grammar->expression_work(), 1'600'000u) << "for all masks";
  }
}

// The most that a mask takes anew in front of any byte of `text`.
uint64_t most_work_of_a_mask(const std::string& schema, const std::string& text) {
  static const auto trie = [] {
    std::vector<std::string> tokens = testing::byte_tokens();
    std::mt19937 random(3);
    for (size_t i = 0; i < 4'000; ++i) {
      std::string& word = tokens.emplace_back();
      for (size_t n = 2 + random() % 8; n > 0; --n) word += static_cast<char>('a' + random() % 26);
    }
    return testing::trie_of_tokens(std::move(tokens));
  }();
  const auto grammar = compiled(schema_rules(schema), trie);
  Matcher matcher(grammar);
  constexpr uint64_t kAny = uint64_t{1} << 32;
  uint64_t most = 0;
  for (const char byte : text) {
    SharedWork work;
    work.begin(kAny);
    {
      const HurriedQuestions hurried(*grammar, 0, &work);
      EXPECT_NE(matcher.mask(), nullptr);
    }
    most = std::max(most, kAny - work.take(kAny));
    EXPECT_TRUE(matcher.advance_bytes({&byte, 1}));
  }
  return most;
}

// What most schemas say of their strings does not take a walk over the vocabulary for every length
// that is left.
TEST(Work, AStringTakesNoWalkForEveryLength) {
  const uint64_t free = most_work_of_a_mask(R"({"type":"string"})", "\"abcdefghijklmnop\"");
  for (const char* schema :
       {R"({"type":"string","maxLength":16})", R"({"type":"string","minLength":3,"maxLength":20})",
        R"({"type":"string","pattern":"[a-z]{12}"})"}) {
    EXPECT_LE(most_work_of_a_mask(schema, "\"abcdefghijklmnop\""), 2 * free + 2'000) << schema;
  }
}

// A pattern may have thousands of parts that may come any number of times: comparing each with each
// would take seconds, in one step of the automaton.
TEST(Work, RepetitionsSideBySideAreNotAllCompared) {
  RegexStore store;
  std::vector<ExprId> parts;
  for (int i = 0; i < 2'000; ++i) {
    const ExprId word = store.literal(fmt::format("{:04}", i));
    parts.push_back(store.concat(store.byte('a'), store.repeat(word, 0, kUnbounded)));
  }
  const ExprId all = store.either(parts);
  const uint64_t before = store.work();
  const ExprId rest = store.derivative(all, 'a');
  EXPECT_LT(store.work() - before, 50'000u);
  EXPECT_TRUE(store.matches(rest, "01230123"));
  EXPECT_FALSE(store.matches(rest, "01230124"));
}

// Whoever makes a model says how long its tokens are.
TEST(Work, LongTokensAreReadOnce) {
  constexpr uint32_t kLong = 4'000;
  std::vector<std::string> tokens = testing::byte_tokens();
  tokens.push_back(std::string(kLong, 'a') + R"(\n\ud83d\ude00)");
  const auto one = TokenTrie::make(tokens);
  ASSERT_TRUE(one.ok());
  ASSERT_NE((*one)->json_string(), nullptr);
  EXPECT_EQ((*one)->json_string()->within.back().characters, kLong + 2);
  for (int i = 0; i < 1000; ++i) tokens.push_back(std::to_string(i) + tokens[256]);
  const std::clock_t began = std::clock();
  ASSERT_TRUE(TokenTrie::make(std::move(tokens)).ok());
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 5) << "reading one again for every character takes longer";
}

TEST(Work, TokensOfManyLengthsTakeNoMaskEach) {
  std::vector<std::string> tokens = testing::byte_tokens();
  for (uint32_t i = 2; i < 200; ++i) tokens.emplace_back(i, 'a');
  const auto some = TokenTrie::make(tokens);
  ASSERT_TRUE(some.ok());
  EXPECT_NE((*some)->json_string(), nullptr);
  for (uint32_t i = 200; i < 1'000; ++i) tokens.emplace_back(i, 'a');
  const auto many = TokenTrie::make(tokens);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ((*many)->json_string(), nullptr);
  // And forms do without.
  Matcher matcher(compiled(schema_rules(R"({"type":"string","maxLength":300})", {}), *many));
  EXPECT_TRUE(matcher.advance_bytes("\""));
  ASSERT_NE(matcher.mask(), nullptr);
  const auto token_of = [&](size_t length) {
    return static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), std::string(length, 'a')) -
                                tokens.begin());
  };
  EXPECT_TRUE(matcher.mask()->has(token_of(300)));
  EXPECT_FALSE(matcher.mask()->has(token_of(301)));
}

}  // namespace
}  // namespace skein::grammar
