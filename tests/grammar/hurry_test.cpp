// Who is in a hurry waits for nothing, and what it leaves undone changes no answer.
#include <fmt/format.h>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "grammar/gbnf.h"
#include "grammar/grammar_helpers.h"

namespace skein::grammar {
namespace {

using testing::compiled;
using testing::schema_rules;

// What is known is not free where there is much of it.
TEST(Hurry, WhoIsInAHurryLooksAtNoMoreThanItMay) {
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 900; ++i) many += fmt::format("{}\"p{}\":{{}}", i > 0 ? "," : "", i);
  many += R"(},"additionalProperties":false})";
  const auto late_in = [&](const GrammarOptions& options, uint64_t work, uint64_t& forgotten) {
    const auto grammar = compiled(schema_rules(many), testing::byte_trie(), options);
    Matcher first(grammar), second(grammar);
    EXPECT_TRUE(first.advance_bytes("{") && second.advance_bytes("{\"p1"));
    EXPECT_NE(Matcher(first).mask(), nullptr);
    EXPECT_NE(second.mask(), nullptr);  // the only one that is kept
    forgotten = grammar->times_forgotten();
    const HurriedQuestions hurried(*grammar, work);
    const bool is_made = first.mask() != nullptr;
    forgotten = grammar->times_forgotten() - forgotten;
    EXPECT_NE(is_made, hurried.late());
    return hurried.late();
  };
  uint64_t forgotten = 0;
  EXPECT_TRUE(late_in({.automaton_bytes = uint64_t{1} << 40, .mask_bytes = 1}, 10'000, forgotten));
  EXPECT_TRUE(late_in({.automaton_bytes = 1 << 16, .mask_bytes = 1}, 500, forgotten));
  EXPECT_EQ(forgotten, 0u) << "that is for who can wait";
}

// A search is left where it is, nothing of it is remembered, and who can wait is answered as ever.
TEST(Hurry, WhoIsInAHurryDoesNotWaitForASearch) {
  const auto form = [] {
    return compiled(schema_rules(R"({"type":"number","multipleOf":99999.9989})"));
  };
  const auto grammar = form();
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.advance_bytes("639"));
  uint64_t asked = 0;
  {
    const uint64_t before = grammar->expression_work();
    const HurriedQuestions hurried(*grammar, 10'000);
    EXPECT_EQ(matcher.mask(), nullptr);
    EXPECT_TRUE(hurried.late());
    asked = grammar->expression_work() - before;
  }
  EXPECT_LT(asked, 20'000u);
  EXPECT_FALSE(matcher.failed());
  Matcher patient(form());
  ASSERT_TRUE(patient.advance_bytes("639"));
  ASSERT_NE(patient.mask(), nullptr);
  ASSERT_NE(matcher.mask(), nullptr);
  EXPECT_EQ(*matcher.mask(), *patient.mask());
}

// Nor for many short ones, one behind the other.
TEST(Hurry, WhoIsInAHurryLeavesASearchInTheMiddle) {
  const auto grammar = compiled(
      schema_rules(R"({"type":"number","allOf":[{"multipleOf":9.97},{"multipleOf":9.91}]})"));
  Matcher matcher(grammar);
  const uint64_t before = grammar->expression_work();
  const HurriedQuestions hurried(*grammar, 10'000);
  EXPECT_EQ(matcher.mask(), nullptr);
  EXPECT_TRUE(hurried.late());
  EXPECT_FALSE(matcher.failed());
  EXPECT_LT(grammar->expression_work() - before, 100'000u);
}

// A row of a grammar with many meanings has thousands of items. It is left in the middle, too.
TEST(Hurry, WhoIsInAHurryLeavesARowInTheMiddle) {
  const auto form = [] {
    return compiled(
        gbnf_rules(R"(root ::= root "a" | root root | "b" | root "c" root | "[" root "]")")
            .value());
  };
  const std::string text(40, 'b');
  const auto grammar = form();
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.advance_bytes(text));
  {
    const uint64_t before = grammar->row_work();
    const HurriedQuestions hurried(*grammar, 10'000);
    EXPECT_FALSE(matcher.advance_bytes("b"));
    EXPECT_TRUE(hurried.late());
    EXPECT_LE(grammar->row_work() - before, 10'000u);
  }
  EXPECT_FALSE(matcher.failed());
  Matcher patient(form());
  ASSERT_TRUE(patient.advance_bytes(text + "b"));
  ASSERT_TRUE(matcher.advance_bytes("b"));
  ASSERT_NE(patient.mask(), nullptr);
  ASSERT_NE(matcher.mask(), nullptr);
  EXPECT_EQ(*matcher.mask(), *patient.mask());
}

TEST(Hurry, WhoIsInAHurryDoesNotWaitForAnotherThread) {
  const auto grammar = compiled(schema_rules(R"({"type":"string","maxLength":9})"));
  Matcher matcher(grammar);
  std::mutex held;
  held.lock();
  std::promise<void> has;
  std::thread other([&] {
    const HurriedQuestions mine(*grammar, UINT64_MAX);
    EXPECT_FALSE(mine.late());
    has.set_value();
    held.lock();
  });
  has.get_future().wait();
  EXPECT_TRUE(HurriedQuestions(*grammar, UINT64_MAX).late());
  held.unlock();
  other.join();
  const HurriedQuestions free(*grammar, 0);
  EXPECT_FALSE(free.late());
  EXPECT_EQ(matcher.mask(), nullptr);
  EXPECT_TRUE(free.late());
  EXPECT_FALSE(matcher.failed());
}

TEST(Hurry, WhoHasUsedUpItsOwnTakesOfWhatIsShared) {
  const auto grammar = compiled(schema_rules(R"({"type":"string","pattern":"^[a-z]{2,9}$"})"));
  Matcher matcher(grammar);
  SharedWork more;
  {
    const HurriedQuestions hurried(*grammar, 1, &more);
    EXPECT_EQ(matcher.mask(), nullptr);
    EXPECT_TRUE(hurried.late()) << "nothing is shared";
  }
  constexpr uint64_t kShared = 100'000;
  more.begin(kShared);
  {
    const HurriedQuestions hurried(*grammar, 1, &more);
    EXPECT_NE(matcher.mask(), nullptr);
    EXPECT_FALSE(hurried.late());
  }
  const uint64_t left = more.take(UINT64_MAX);
  EXPECT_LT(left, kShared);
  EXPECT_GT(left, kShared / 2);
  EXPECT_EQ(more.take(1), 0u);
}

}  // namespace
}  // namespace skein::grammar
