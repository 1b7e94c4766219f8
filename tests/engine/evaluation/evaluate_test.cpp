#include "engine/evaluation/evaluate.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <vector>

#include "engine/tiny_model.h"

namespace skein {
namespace {

using testing::TestFolder;
using Lists = std::vector<std::vector<TokenId>>;
using Rows = std::map<std::pair<size_t, uint32_t>, std::vector<float>>;

class EvaluatorTest : public ::testing::Test {
 protected:
  std::unique_ptr<LoadedModel> load(DecoderLimits limits) {
    ModelOptions options;
    options.limits = limits;
    auto model = LoadedModel::load(testing::write_tiny_model(folder_), options, pool_);
    EXPECT_TRUE(model.ok()) << model.message();
    return std::move(*model);
  }
  Rows rows(DecoderLimits limits, const Lists& lists, const Evaluator::Options& options) {
    const auto model = load(limits);
    Rows out;
    const Status status = Evaluator(*model).run(lists, options, [&](const Evaluator::Row& row) {
      const auto added = out.emplace(std::pair(row.list, row.position),
                                     std::vector<float>(row.logits.begin(), row.logits.end()));
      EXPECT_TRUE(added.second) << "list " << row.list << ", position " << row.position;
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  TestFolder folder_;
  ComputePool pool_{2};
};

Lists several_lists() {
  Lists lists;
  for (const size_t length : {1, 70, 33, 2, 100, 32}) {
    lists.emplace_back();
    for (size_t i = 0; i < length; ++i) {
      lists.back().push_back(static_cast<TokenId>((length * 31 + i * i) % 256));
    }
  }
  return lists;
}

TEST_F(EvaluatorTest, EveryBatchGivesTheSameBits) {
  const Lists lists = several_lists();
  const Evaluator::Options options = {.all = true, .greedy = 5};
  const Rows one = rows({.rows = 1, .logit_rows = 1}, lists, options);
  size_t expected = 0;
  for (const auto& list : lists) expected += list.size() + 4;
  EXPECT_EQ(one.size(), expected);
  EXPECT_EQ(rows({.rows = 256, .logit_rows = 32}, lists, options), one);
  EXPECT_EQ(rows({.rows = 16, .logit_rows = 16}, lists, options), one);
  EXPECT_EQ(rows({.rows = 256, .logit_rows = 256}, lists, options), one);
}

TEST_F(EvaluatorTest, LastRowsAreThoseOfAll) {
  const Lists lists = several_lists();
  const Rows all = rows({.rows = 64, .logit_rows = 64}, lists, {.all = true, .greedy = 3});
  const Rows last = rows({.rows = 64, .logit_rows = 4}, lists, {.all = false, .greedy = 3});
  EXPECT_EQ(last.size(), 3 * lists.size());
  for (const auto& [where, logits] : last) {
    EXPECT_GE(where.second + 1, lists[where.first].size());
    EXPECT_EQ(logits, all.at(where));
  }
}

TEST_F(EvaluatorTest, RefusesWithTheIndices) {
  const auto model = load({});
  Evaluator evaluator(*model);
  const auto message = [&](const Lists& lists, uint32_t greedy = 0) {
    return evaluator.run(lists, {.greedy = greedy}, [](const Evaluator::Row&) { FAIL(); })
        .message();
  };
  EXPECT_EQ(message({{1}, {}}), "list 1 is empty; it needs at least 1 id");
  EXPECT_EQ(message({{1}, {2, 272}}), "list 1, index 1: id 272; the vocabulary has 272");
  EXPECT_EQ(message({{-3}}), "list 0, index 0: id -3; the vocabulary has 272");
  EXPECT_EQ(message({std::vector<TokenId>(500, 1)}, 14),
            "list 0 has 500 ids and 14 to generate; the context holds 512");
}

TEST(Divergence, OfKnownDistributions) {
  Divergence divergence;
  const auto logs = [](std::vector<double> shares) {
    std::vector<float> out;
    for (const double share : shares) out.push_back(static_cast<float>(std::log(share) + 3));
    return out;
  };
  const std::vector<float> half = logs({0.5, 0.25, 0.25});
  divergence.add(half, half, 1);
  divergence.add(half, logs({0.25, 0.5, 0.25}), 0);
  const Divergence::Summary summary = divergence.summary();
  EXPECT_EQ(summary.positions, 2u);
  // 0.5 log 2 + 0.25 log 0.5
  EXPECT_NEAR(summary.max_kl, 0.25 * std::log(2), 1e-6);
  EXPECT_NEAR(summary.mean_kl, 0.125 * std::log(2), 1e-6);
  EXPECT_NEAR(summary.p99_kl, summary.max_kl, 1e-12);
  EXPECT_EQ(summary.same_top, 0.5);
  EXPECT_NEAR(summary.perplexity, 4, 1e-5) << "a quarter each time";
  EXPECT_NEAR(summary.reference_perplexity, std::sqrt(8), 1e-5);
}

TEST(Divergence, P99IsTheNearestRank) {
  Divergence divergence;
  const std::vector<float> even = {0, 0};
  for (int i = 1; i <= 200; ++i) {
    const std::vector<float> other = {static_cast<float>(i) * 0.01F, 0};
    divergence.add(even, other, kNoToken);
  }
  const double d = 1.98;  // of the 198th
  const double expected = std::log((1 + std::exp(d)) / 2) - d / 2;
  EXPECT_NEAR(divergence.summary().p99_kl, expected, 1e-6);
  EXPECT_EQ(divergence.summary().perplexity, 0);
  EXPECT_EQ(Divergence().summary().positions, 0u);
}

}  // namespace
}  // namespace skein
