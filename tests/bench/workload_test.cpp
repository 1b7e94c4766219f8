#include "bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace skein::bench {
namespace {

using ::testing::HasSubstr;

TEST(Workload, NoTwoPromptsBeginAlike) {
  const auto items = built_in_workload(300, 100, false);
  std::set<std::string> beginnings;
  for (const WorkItem& item : items) beginnings.insert(item.text.substr(0, 12));
  // A block has 32 tokens, so far fewer equal ones at the start cannot be shared.
  EXPECT_EQ(beginnings.size(), items.size());
}

TEST(Workload, LengthsAreShortToLongAndMixed) {
  const auto items = built_in_workload(kBuiltInPrompts, 7, false);
  size_t shortest = SIZE_MAX, longest = 0, first_half = 0, second_half = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t size = items[i].text.size();
    shortest = std::min(shortest, size), longest = std::max(longest, size);
    (i < items.size() / 2 ? first_half : second_half) += size;
    EXPECT_EQ(items[i].max_tokens, 7U);
  }
  EXPECT_LT(shortest, 20U);
  EXPECT_GT(longest, 1200U);
  EXPECT_LT(std::max(first_half, second_half), 2 * std::min(first_half, second_half));
}

TEST(Workload, ASharedPrefixIsSharedByAll) {
  const auto items = built_in_workload(40, 100, true);
  const auto tokens = made_up_tokens(items[0], 1000);
  for (const WorkItem& item : items) {
    EXPECT_EQ(item.text.substr(0, 800), items[0].text.substr(0, 800));
    const auto other = made_up_tokens(item, 1000);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + 200, other.begin()));
  }
  EXPECT_NE(items[0].text, items[20].text);
}

TEST(Workload, MadeUpTokensStayInTheVocabularyAndDiffer) {
  const auto items = built_in_workload(64, 100, false);
  std::set<std::vector<TokenId>> blocks;
  for (const WorkItem& item : items) {
    auto tokens = made_up_tokens(item, 50);
    for (const TokenId token : tokens) EXPECT_TRUE(token >= 0 && token < 50);
    tokens.resize(8);
    blocks.insert(tokens);
  }
  EXPECT_EQ(blocks.size(), 64U);
}

TEST(Workload, MadeUpPromptsHaveTheirLengthAndNoTwoBeginAlike) {
  std::set<std::vector<TokenId>> beginnings;
  for (const WorkItem& item : made_up_workload(0, 300, 128, 7)) {
    EXPECT_EQ(item.max_tokens, 7U);
    auto tokens = made_up_tokens(item, 50'000);
    ASSERT_EQ(tokens.size(), 128U);
    EXPECT_EQ(made_up_tokens(item, 50'000), tokens);
    tokens.resize(2);
    beginnings.insert(tokens);
  }
  EXPECT_EQ(beginnings.size(), 300U);
  // One endless list: where a part of it begins does not matter.
  EXPECT_EQ(made_up_tokens(made_up_workload(7, 1, 128, 7)[0], 1000),
            made_up_tokens(made_up_workload(0, 8, 128, 7)[7], 1000));
}

TEST(Trace, CountsAreDifferentPrompts) {
  const auto items = parse_trace("{\"prompt_tokens\": 70}\n{\"prompt_tokens\": 70}\n", 1);
  ASSERT_TRUE(items.ok()) << items.message();
  EXPECT_NE(made_up_tokens((*items)[0], 1000), made_up_tokens((*items)[1], 1000));
}

TEST(Trace, TakesTextsIdsAndCounts) {
  const auto items = parse_trace(
      "{\"prompt\": \"Hello\", \"max_tokens\": 5, \"arrival_ms\": 20, \"class\": \"high\"}\n\n"
      "{\"prompt_tokens\": [1, 2, 3], \"output_tokens\": 9}\r\n"
      "{\"prompt_tokens\": 70, \"class\": \"low\", \"arrival_ms\": 10.5}",
      100);
  ASSERT_TRUE(items.ok()) << items.message();
  ASSERT_EQ(items->size(), 3U);
  EXPECT_EQ((*items)[0].tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ((*items)[0].max_tokens, 9U);
  EXPECT_EQ((*items)[1].prompt_tokens, 70U);
  EXPECT_EQ((*items)[1].priority, Priority::LOW);
  EXPECT_EQ((*items)[1].max_tokens, 100U);
  EXPECT_EQ((*items)[1].arrival_us, 10'500);
  EXPECT_EQ((*items)[2].text, "Hello");
  EXPECT_EQ((*items)[2].priority, Priority::HIGH);
}

TEST(Trace, AServersLogIsOne) {
  const auto items = parse_trace(
      "skein listens on http://127.0.0.1:8080\n"
      "2026-02-28T23:59:59.900Z info ready\n"
      "2026-03-01T00:00:02.000Z info {\"id\":\"cmpl-2\",\"class\":\"low\",\"prompt_tokens\":12,"
      "\"output_tokens\":4,\"total_ms\":500.0}\n"
      "2026-03-01T00:00:03.000Z info {\"id\":\"cmpl-1\",\"class\":\"normal\",\"prompt_tokens\":8,"
      "\"output_tokens\":16,\"total_ms\":3250.0}\n"
      "2026-03-01T00:00:03.000Z info {\"id\":\"cmpl-3\",\"prompt_tokens\":8,\"output_tokens\":0}\n",
      100);
  ASSERT_TRUE(items.ok()) << items.message();
  ASSERT_EQ(items->size(), 2U);
  EXPECT_EQ((*items)[0].prompt_tokens, 8U);  // ended last, came first
  EXPECT_EQ((*items)[0].max_tokens, 16U);
  EXPECT_EQ((*items)[0].arrival_us, 0);
  EXPECT_EQ((*items)[1].arrival_us, 1'750'000);
  EXPECT_EQ((*items)[1].priority, Priority::LOW);
}

TEST(Trace, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "holds no request"},
      {"{\"prompt\": \"a\"}\nnot json", "line 2: not a JSON object"},
      {"[1]", "line 1: not a JSON object"},
      {"{\"max_tokens\": 3}", "neither prompt nor prompt_tokens"},
      {"{\"prompt\": 3}", "prompt is not a text"},
      {"{\"prompt_tokens\": []}", "prompt_tokens is empty"},
      {"{\"prompt_tokens\": [-1]}", "holds -1, not an id"},
      {"{\"prompt_tokens\": 0}", "prompt_tokens is 0"},
      {"{\"prompt\": \"a\", \"max_tokens\": \"x\"}", "max_tokens is \"x\""},
      {"{\"prompt\": \"a\", \"arrival_ms\": -4}", "arrival_ms is -4"},
      {"{\"prompt\": \"a\", \"class\": \"urgent\"}", "none of high, normal and low"},
      {"{\"prompt\": \"a\", \"class\": 1}", "class is 1"},
  };
  for (const auto& [text, message] : cases) {
    const auto items = parse_trace(text, 10);
    ASSERT_FALSE(items.ok()) << text;
    EXPECT_THAT(items.message(), HasSubstr(message)) << text;
  }
}

TEST(Poisson, GapsHaveTheRateAndAreTheSameForASeed) {
  auto items = built_in_workload(20'000, 1, false);
  set_poisson_arrivals(items, 50, 3);
  EXPECT_NEAR(static_cast<double>(items.back().arrival_us) / kUsPerSecond, 400, 12);
  // Of exponential gaps, 1 - 1/e are shorter than the mean.
  int shorter = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    EXPECT_GE(items[i].arrival_us, items[i - 1].arrival_us);
    shorter += items[i].arrival_us - items[i - 1].arrival_us < 20'000 ? 1 : 0;
  }
  EXPECT_NEAR(shorter / 20'000.0, 0.632, 0.02);
  auto again = built_in_workload(20, 1, false);
  set_poisson_arrivals(again, 50, 3);
  EXPECT_EQ(again.back().arrival_us, items[19].arrival_us);
}

}  // namespace
}  // namespace skein::bench
