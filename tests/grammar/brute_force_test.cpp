// Masks against brute force: 200 random forms, 50 states each, over three vocabularies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"

namespace skein::grammar {
namespace {

using testing::compiled;
using testing::trie_of_tokens;

class FormMaker {
 public:
  explicit FormMaker(uint32_t seed) : random_(seed) {}

  std::string schema(int depth = 0) {
    switch (below(depth < 3 ? 13 : 8)) {
      case 0:
        return R"({"type":"string"})";
      case 1:
        return fmt::format(R"({{"type":"string","minLength":{},"maxLength":{}}})", below(4),
                           3 + below(60));
      case 2:
        return fmt::format(R"({{"type":"string","pattern":"^{}$"}})", pattern(0));
      case 3:
        return fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})",
                           static_cast<int>(below(50)) - 60, below(2000));
      case 4:
        return R"({"enum":["a","ab","the name",1,12,null,"aé"]})";
      case 5:
        return R"({"type":["number","null","boolean"]})";
      case 6:
        return R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,12,"a","ab"]}})";
      case 7:
        return R"({"type":"string","not":{"pattern":"^a+b?$"}})";
      case 8:
        return fmt::format(R"({{"type":"array","items":{},"maxItems":{}}})", schema(depth + 1),
                           1 + below(4));
      case 9:
        return fmt::format(R"({{"anyOf":[{},{}]}})", schema(depth + 1), schema(depth + 1));
      case 10:
        return fmt::format(R"({{"type":"object","additionalProperties":{}}})", schema(depth + 1));
      default:
        return fmt::format(
            R"({{"type":"object","properties":{{"a":{},"name":{},"ab":{}}},"required":["{}"]}})",
            schema(depth + 1), schema(depth + 1), schema(depth + 1), below(2) ? "a" : "name");
    }
  }

  std::string pattern(int depth) {
    static constexpr const char* kAtoms[] = {"a", "b", "[a-f]", "[^a-c]", ".", "é", "\\\\d", "the"};
    std::string text;
    for (uint32_t n = 1 + below(3); n > 0; --n) {
      std::string atom = kAtoms[below(8)];
      if (depth < 2 && below(3) == 0) atom = pattern(depth + 1) + "|" + pattern(depth + 1);
      text += "(" + atom + ")";
      static constexpr const char* kCounts[] = {"", "*", "+", "?", "{2,5}", "{0,40}"};
      text += kCounts[below(6)];
    }
    return text;
  }

  std::string gbnf() {
    std::string text = "root ::= a0 | a1 \",\" root";
    for (int i = 0; i < 4; ++i) {
      text += fmt::format("\na{} ::=", i);
      for (uint32_t n = 1 + below(3); n > 0; --n) text += part() + (n > 1 ? " |" : "");
    }
    return text;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  std::string part() {
    std::string text;
    for (uint32_t n = 1 + below(3); n > 0; --n) {
      switch (below(6)) {
        case 0:
          text += fmt::format(" \"[\" a{} \"]\"", below(4));
          break;
        case 1:
          text += " [a-e]+";
          break;
        case 2:
          text += " \"the \"";
          break;
        case 3:
          text += fmt::format(" (\"ab\" | [0-9]){{{},{}}}", below(2), 2 + below(4));
          break;
        case 4:
          text += " [^x\\n]";
          break;
        default:
          text += " \"a\"?";
          break;
      }
    }
    return text;
  }
  std::mt19937 random_;
};

struct Vocabulary {
  std::shared_ptr<const TokenTrie> trie;
  bool strips_leading_space;
};

// Bytes and pieces as BPE has them; the same with long tokens; words with a space in front, as
// SentencePiece has them.
std::vector<Vocabulary> three_vocabularies() {
  std::vector<std::string> large = testing::small_vocabulary(7, 120),
                           words = testing::byte_tokens();
  for (const size_t n : {5, 12, 31, 64, 128}) {
    large.emplace_back(n, 'a');
    large.emplace_back(n, ' ');
    large.push_back(std::string(n, 'b') + "\"");
    large.push_back(std::string(n - 1, 'c') + "é");
  }
  for (const char* piece : testing::kPieces) {
    words.emplace_back(piece);
    words.push_back(" " + std::string(piece));
  }
  return {{trie_of_tokens(testing::small_vocabulary(11, 80)), false},
          {trie_of_tokens(std::move(large)), false},
          {trie_of_tokens(std::move(words)), true}};
}

// One walk of at most `steps` states; it ends where a form is too complex.
void check_states(const std::shared_ptr<CompiledGrammar>& grammar, bool strips,
                  std::mt19937& random, size_t steps, size_t& states, bool& too_complex) {
  Matcher matcher(grammar, strips);
  for (size_t step = 0; step < steps && !matcher.must_end(); ++step, ++states) {
    const TokenMask* mask = matcher.mask();
    if (mask == nullptr) {
      too_complex = true;
      return;
    }
    std::vector<TokenId> allowed;
    for (TokenId t = 0; t < static_cast<TokenId>(grammar->trie().size()); ++t) {
      ASSERT_EQ(mask->has(t), matcher.allows(t))
          << "'" << grammar->trie().bytes_of(t) << "' after '" << matcher.text() << "'";
      if (mask->has(t)) allowed.push_back(t);
    }
    if (allowed.empty()) break;
    // As a greedy sampler has it: the likeliest is asked first, and is taken just if it may come.
    const auto likeliest = static_cast<TokenId>(random() % grammar->trie().size());
    Matcher asked = matcher;
    ASSERT_EQ(asked.advance(likeliest), mask->has(likeliest));
    ASSERT_TRUE(matcher.advance(allowed[random() % allowed.size()]));
  }
}

TEST(BruteForce, TwoHundredFormsOverThreeVocabularies) {
  const std::vector<Vocabulary> vocabularies = three_vocabularies();
  FormMaker forms(2026);
  std::mt19937 random(5);
  size_t taken = 0, states = 0, left_out = 0;
  for (int i = 0; taken < 200; ++i) {
    ASSERT_LT(i, 400) << "too few of the forms can be used";
    const std::string text = i % 3 == 0   ? forms.gbnf()
                             : i % 3 == 1 ? forms.schema()
                                          : forms.pattern(0);
    SCOPED_TRACE(text);
    Rules rules;
    if (i % 3 == 1) {
      auto made = json_schema_rules(text, {});
      if (!made.ok()) continue;
      rules = std::move(made->rules);
    } else {
      auto made = i % 3 == 0 ? gbnf_rules(text) : regex_rules(text);
      if (!made.ok()) continue;
      rules = std::move(*made);
    }
    const Vocabulary& vocabulary = vocabularies[taken % vocabularies.size()];
    auto grammar = compile(std::move(rules), vocabulary.trie);
    if (!grammar.ok()) continue;
    ++taken;
    const size_t before = states;
    bool too_complex = false;
    for (int walks = 0; walks < 20 && states < before + 50 && !too_complex; ++walks) {
      check_states(*grammar, vocabulary.strips_leading_space, random, before + 50 - states, states,
                   too_complex);
      if (::testing::Test::HasFatalFailure()) return;
    }
    taken -= too_complex ? 1 : 0;
    left_out += too_complex ? 1 : 0;
  }
  EXPECT_GT(states, 8'000u);
  EXPECT_LE(left_out, 20u) << "forms that a mask may not take the work for";
  RecordProperty("states", static_cast<int>(states));
  RecordProperty("left_out", static_cast<int>(left_out));
}

}  // namespace
}  // namespace skein::grammar
