// What a form allows, and where it fails, is a function of the form and the text: not of what other
// requests have asked before, and not of what has been forgotten since.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>

#include "grammar/choice.h"
#include "grammar/grammar_helpers.h"
#include "grammar/regex_parser.h"

namespace skein::grammar {
namespace {

using testing::compiled;
using testing::schema_rules;
using testing::small_vocabulary;
using testing::trie_of_tokens;

constexpr GrammarOptions kWarm{.automaton_bytes = uint64_t{1} << 40, .mask_bytes = 1 << 24};
constexpr GrammarOptions kCold{.automaton_bytes = 0, .mask_bytes = 0};

// Forms whose expressions have intersections and complements, so that steps need searches.
class SearchedForms {
 public:
  explicit SearchedForms(uint32_t seed) : random_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  std::string schema() {
    switch (below(8)) {
      case 0:
        return fmt::format(R"({{"type":"string","pattern":"^{}$","minLength":{},"maxLength":{}}})",
                           words(2), below(6), 6 + below(40));
      case 1:
        return fmt::format(R"({{"type":"string","not":{{"pattern":"{}"}},"minLength":{}}})",
                           words(1), below(9));
      case 2:
        return fmt::format(
            R"({{"type":"object","patternProperties":{{"^{}":{{"type":"null"}},"{}$":{{"type":"integer"}}}},"additionalProperties":{{"type":"boolean"}}}})",
            words(1), words(1));
      case 3:
        return fmt::format(
            R"({{"type":"object","properties":{{"a":{{}},"ab{}":{{}},"name":{{"type":"null"}}}},"additionalProperties":{{"type":"integer"}},"minProperties":{}}})",
            below(9), below(3));
      case 4:
        return fmt::format(
            R"({{"type":"array","uniqueItems":true,"items":{{"type":"string","maxLength":{}}}}})",
            1 + below(9));
      case 5:
        return fmt::format(
            R"({{"type":"array","uniqueItems":true,"items":{{"enum":["a","ab","b",1,12,{}]}},"maxItems":{}}})",
            below(99), 1 + below(7));
      case 6:
        return fmt::format(
            R"({{"allOf":[{{"type":"string","pattern":"{}"}},{{"pattern":"{}"}},{{"not":{{"pattern":"{}"}}}}]}})",
            words(1), words(2), words(1));
      default:
        return fmt::format(
            R"({{"type":"string","allOf":[{{"pattern":"a.{{{},}}$"}},{{"pattern":"^.{{0,{}}}b"}}],"maxLength":{}}})",
            below(9), below(9), 9 + below(20));
    }
  }

  std::string words(uint32_t most) {
    static constexpr const char* kAtoms[] = {"a", "[ab]", "[^a]", ".", "ab|b", "[a-e0-9]", "the"};
    static constexpr const char* kCounts[] = {"", "*", "+", "{2,5}", "{0,12}"};
    std::string text;
    for (uint32_t n = 1 + below(most + 1); n > 0; --n) {
      text += fmt::format("({}){}", kAtoms[below(7)], kCounts[below(5)]);
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

// What one request sees: at every step its mask, whether it may end, and the token that it takes;
// or that it has failed. Which token it takes is its own choice.
class Request {
 public:
  // One that `hurries` asks everything first with little time.
  Request(const std::shared_ptr<CompiledGrammar>& grammar, uint32_t seed, bool hurries = false)
      : grammar_(grammar),
        matcher_(grammar),
        tokens_(grammar->trie().size()),
        random_(seed),
        hurries_(hurries),
        haste_(seed) {}

  bool step() {
    if (done_) return false;
    if (hurries_) ask_in_a_hurry();
    // Some ask for a token before they ask for a mask, as a greedy sampler does.
    if (random_() % 2 == 0) {
      const auto asked = static_cast<TokenId>(random_() % tokens_);
      log_ += matcher_.allows(asked) ? '+' : '-';
    }
    const TokenMask* mask = matcher_.mask();
    done_ = mask == nullptr;
    log_ += done_ ? "failed" : digest(*mask);
    if (done_) return false;
    log_ += matcher_.may_end() ? '.' : ',';
    std::vector<TokenId> allowed;
    for (TokenId t = 0; t < static_cast<TokenId>(tokens_); ++t) {
      if (mask->has(t)) allowed.push_back(t);
    }
    done_ = allowed.empty();
    if (done_) return false;
    const TokenId token = allowed[random_() % allowed.size()];
    done_ = !matcher_.advance(token);
    log_ += fmt::format("{}{} ", token, done_ ? "!" : "");
    return !done_;
  }
  const std::string& log() const { return log_; }
  bool failed() const { return matcher_.failed(); }
  uint32_t late() const { return late_; }
  uint32_t in_time() const { return in_time_; }

 private:
  // Of a fork, so that nothing but the grammar remembers it, and of the matcher itself.
  void ask_in_a_hurry() {
    const HurriedQuestions hurried(*grammar_, haste_() % (1U << haste_() % 12));
    const Matcher before = matcher_;
    Matcher fork = matcher_;
    Matcher& asked = haste_() % 2 == 0 ? fork : matcher_;
    const auto token = static_cast<TokenId>(haste_() % tokens_);
    const bool allowed = asked.allows(token);
    if (!hurried.late() && !asked.failed()) {
      const TokenMask* mask = asked.mask();
      if (!hurried.late() && mask != nullptr) {
        EXPECT_EQ(mask->has(token), allowed);
      }
    }
    fork.advance(token);
    // It has failed for good, at a question that it may not be asked otherwise, or later.
    if (!hurried.late() && matcher_.failed()) matcher_ = before;
    ++(hurried.late() ? late_ : in_time_);
  }

  static std::string digest(const TokenMask& mask) {
    return fmt::format("{:x}", words_hash<uint64_t>(mask.words()));
  }
  std::shared_ptr<CompiledGrammar> grammar_;
  Matcher matcher_;
  uint32_t tokens_;
  std::mt19937 random_;
  bool hurries_;
  std::mt19937 haste_;
  uint32_t late_ = 0, in_time_ = 0;
  std::string log_;
  bool done_ = false;
};

constexpr uint32_t kRequests = 6;
constexpr int kSteps = 12;

struct Outcome {
  std::vector<std::string> logs;
  uint32_t failures = 0;
  uint32_t late = 0, in_time = 0;
};

// Six requests on one grammar, in turn or one behind the other, which is forgotten now and then.
std::optional<Outcome> outcome(const Rules& rules, const std::shared_ptr<const TokenTrie>& trie,
                               const GrammarOptions& options, bool in_turn, uint32_t forgets,
                               bool hurries = false) {
  Rules copy = rules;
  copy.regex = std::make_shared<RegexStore>(*rules.regex);
  auto grammar = compile(std::move(copy), trie, options);
  if (!grammar.ok()) return std::nullopt;
  std::mt19937 random(forgets);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < kRequests; ++i) requests.emplace_back(*grammar, i, hurries);
  const auto step = [&](Request& one) {
    if (forgets > 0 && random() % 3 == 0) (*grammar)->forget_all();
    return one.step();
  };
  for (int i = 0; i < kSteps && in_turn; ++i) {
    for (Request& one : requests) step(one);
  }
  for (Request& one : requests) {
    for (int i = 0; i < kSteps && !in_turn && step(one); ++i) {
    }
  }
  Outcome result;
  for (const Request& one : requests) {
    result.logs.push_back(one.log());
    result.failures += one.failed() ? 1 : 0;
    result.late += one.late();
    result.in_time += one.in_time();
  }
  return result;
}

TEST(Determinism, OutcomesAreTheSameWarmColdAndForgotten) {
  const auto trie = trie_of_tokens(small_vocabulary(3, 60));
  SearchedForms forms(7);
  uint32_t failures = 0, ends = 0, taken = 0, late = 0, in_time = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string schema = forms.schema();
    GrammarOptions warm = kWarm, cold = kCold, small{.automaton_bytes = 1024, .mask_bytes = 1024};
    const WorkLimits limits{.mask = 200u << forms.below(10), .expressions = 40u << forms.below(8)};
    warm.limits = cold.limits = small.limits = limits;
    SCOPED_TRACE(fmt::format("{} with {} units and {} expressions", schema, limits.mask,
                             limits.expressions));
    auto rules = json_schema_rules(schema, {});
    ASSERT_TRUE(rules.ok()) << rules.error().message;
    const auto expected = outcome(rules->rules, trie, cold, false, 0);
    if (!expected) continue;
    ++taken;
    failures += expected->failures;
    ends += kRequests - expected->failures;
    EXPECT_EQ(outcome(rules->rules, trie, warm, false, 0)->logs, expected->logs) << "warm";
    EXPECT_EQ(outcome(rules->rules, trie, warm, true, 0)->logs, expected->logs) << "in turn";
    EXPECT_EQ(outcome(rules->rules, trie, small, true, 0)->logs, expected->logs) << "1 KiB";
    EXPECT_EQ(outcome(rules->rules, trie, warm, true, 1 + i)->logs, expected->logs) << "forgotten";
    for (const GrammarOptions& options : {warm, cold, small}) {
      const auto hurried = outcome(rules->rules, trie, options, true, 0, true);
      EXPECT_EQ(hurried->logs, expected->logs) << "in a hurry";
      late += hurried->late;
      in_time += hurried->in_time;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(late, 1000u);
  EXPECT_GT(in_time, 1000u);
  EXPECT_GT(taken, 100u);
  EXPECT_GT(failures, 150u) << "limits that nothing meets show nothing";
  EXPECT_GT(ends, 150u);
}

// What an answer rests on is the same whatever was asked before it.
TEST(Determinism, AnswersRestOnTheSameSearches) {
  SearchedForms forms(11);
  uint64_t searched = 0;
  for (int i = 0; i < 300; ++i) {
    RegexStore store;
    ExprId e = kAnything;
    std::string shown;
    for (uint32_t parts = 2 + forms.below(3); parts > 0; --parts) {
      const std::string pattern = forms.words(3);
      auto part = parse_pattern(store, pattern, {.anchored = forms.below(2) == 0});
      ASSERT_TRUE(part.ok()) << pattern;
      const bool opposite = forms.below(2) == 0;
      e = store.both(e, opposite ? store.negation(*part) : *part);
      shown += (opposite ? " ~" : " ") + pattern;
    }
    SCOPED_TRACE(shown);
    store.limit_questions(UINT32_MAX);
    const RegexStore::Mark mark = store.mark();
    std::vector<std::string> texts;
    for (int k = 0; k < 12; ++k) {
      std::string text;
      for (uint32_t n = 1 + forms.below(7); n > 0; --n) text += "abcthe0\xC3"[forms.below(8)];
      texts.push_back(text);
    }
    const auto steps_of = [&](const std::string& text) {
      const SearchLog::Outer outer = store.searches().begin();
      ExprId at = e;
      for (const char c : text) at = store.derivative(at, static_cast<uint8_t>(c));
      Once counted;
      const uint64_t steps = store.searches().steps(store.searches().end(outer), counted);
      return fmt::format("{} {} {}", steps, at == kNothing, store.nullable(at));
    };
    std::vector<std::string> cold;
    for (const std::string& text : texts) {
      store.forget_after(mark);
      cold.push_back(steps_of(text));
      searched += cold.back().starts_with("0 ") ? 0 : 1;
    }
    store.forget_after(mark);
    for (size_t k = 0; k < texts.size(); ++k) EXPECT_EQ(steps_of(texts[k]), cold[k]) << texts[k];
    store.forget_after(mark);
    for (size_t k = texts.size(); k-- > 0;) EXPECT_EQ(steps_of(texts[k]), cold[k]) << texts[k];
    if (HasFailure()) return;
  }
  EXPECT_GT(searched, 500u);
}

// At the true limits: a token whose steps another request has searched for, one by one, is as dear
// as if nobody had.
TEST(Determinism, ACachedSearchCostsWhatItCostAtFirst) {
  std::mt19937 random(1);
  std::string letters;
  for (int i = 0; i < 120; ++i) letters += static_cast<char>('a' + random() % 7);
  std::vector<std::string> tokens = testing::byte_tokens();
  tokens.push_back(letters);
  const auto trie = trie_of_tokens(std::move(tokens));
  const TokenId token = 256;
  const auto may_come = [&](const std::string& pattern, bool byte_by_byte_before) {
    auto rules = regex_rules(pattern);
    EXPECT_TRUE(rules.ok());
    const auto grammar = compiled(std::move(*rules), trie, kWarm);
    Matcher slow(grammar), matcher(grammar);
    for (size_t i = 0; i < letters.size() && byte_by_byte_before; ++i) {
      EXPECT_TRUE(slow.advance_bytes(letters.substr(i, 1)));
    }
    const bool allowed = matcher.allows(token);
    EXPECT_NE(allowed, matcher.failed());
    return allowed;
  };
  // Every letter that counts may be the one so far from the end: most texts have states of their
  // own, from each of which an end is searched for.
  int allowed = 0;
  for (const int places : {6, 9, 12, 14}) {
    std::string pattern = "^";
    for (int i = 0; i < 5; ++i) {
      pattern += fmt::format("(?=.*{}.{{{}}}$)", static_cast<char>('a' + i), places - i);
    }
    pattern += fmt::format("[a-g]{{{},}}$", places + 2);
    SCOPED_TRACE(pattern);
    const bool cold = may_come(pattern, false);
    EXPECT_EQ(may_come(pattern, true), cold);
    allowed += cold ? 1 : 0;
  }
  EXPECT_GT(allowed, 0);
  EXPECT_LT(allowed, 4);
}

// `","","` may come behind `["x` and not behind `["`, though both stand in the same state.
TEST(Determinism, AMaskOfDistinctTextsIsNotAnothers) {
  std::vector<std::string> tokens = testing::byte_tokens();
  tokens.emplace_back("\",\"\",\"");
  tokens.emplace_back("a\",\"xa\"");
  const TokenId empty = 256, again = 257;
  const auto trie = trie_of_tokens(std::move(tokens));
  const Rules rules =
      schema_rules(R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})",
                   {.strict = true, .white_space = ""});
  for (const bool other_first : {false, true}) {
    Rules copy = rules;
    copy.regex = std::make_shared<RegexStore>(*rules.regex);
    const auto grammar = compiled(std::move(copy), trie, kWarm);
    Matcher nothing(grammar), x(grammar), y(grammar);
    ASSERT_TRUE(nothing.advance_bytes("[\"") && x.advance_bytes("[\"x") && y.advance_bytes("[\"y"));
    if (other_first) {
      ASSERT_NE(x.mask(), nullptr);
    }
    EXPECT_FALSE(nothing.mask()->has(empty));
    EXPECT_TRUE(x.mask()->has(empty));
    EXPECT_TRUE(y.mask()->has(empty) && y.mask()->has(again));
    EXPECT_FALSE(x.mask()->has(again));
    for (Matcher* one : {&nothing, &x, &y}) {
      EXPECT_EQ(one->mask()->has(empty), one->allows(empty)) << one->text();
      EXPECT_EQ(one->mask()->has(again), one->allows(again)) << one->text();
    }
  }
}

// A state that was saved is made again whatever others have put into the automaton meanwhile.
TEST(Determinism, AStateIsRestoredIntoAFullAutomaton) {
  const auto trie = trie_of_tokens(small_vocabulary(3, 30));
  const Rules rules = schema_rules(
      R"({"type":"array","uniqueItems":true,"items":{"type":"string","pattern":"^[a-c]*$","maxLength":900}})",
      {.strict = true, .white_space = ""});
  GrammarOptions options = kWarm;
  options.limits.expressions = 400;
  std::string expected;
  uint64_t forgotten = 0;
  for (size_t filled = 0; filled < 500; filled += filled < 300 ? 25 : 1) {
    Rules copy = rules;
    copy.regex = std::make_shared<RegexStore>(*rules.regex);
    const auto grammar = compiled(std::move(copy), trie, options);
    Matcher saved(grammar), other(grammar);
    ASSERT_TRUE(saved.advance_bytes("[\"abc\",\"ab") && other.advance_bytes("[\""));
    grammar->forget_all();
    for (size_t i = 0; i < filled; ++i) ASSERT_TRUE(other.advance_bytes("b"));
    std::string log(1, saved.may_end() ? '.' : ',');
    Matcher fork = saved;
    const TokenMask* mask = fork.mask();
    ASSERT_NE(mask, nullptr) << filled;
    log += fmt::format("{:x}", words_hash<uint64_t>(mask->words()));
    for (const char* text : {"c\"", "b\"", "c\",\"abb\"]", "d"}) {
      Matcher one = fork;
      log += fmt::format(" {}{}", one.advance_bytes(text), one.may_end());
    }
    if (filled == 0) expected = log;
    EXPECT_EQ(log, expected) << "behind " << filled << " bytes";
    forgotten = grammar->times_forgotten();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(expected.ends_with(" falsefalse truefalse falsefalse falsefalse")) << expected;
  EXPECT_GT(forgotten, 1u) << "the automaton was not full";
}

}  // namespace
}  // namespace skein::grammar
