#include "engine/sampling/sampler.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "base/special_floats.h"
#include "engine/scans.h"
#include "engine/slow_sampling.h"
#include "sim/allocation_hooks.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using testing::kInf, testing::kNan, testing::kOut;

std::vector<float> bell_row(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> row(size);
  for (float& x : row) {
    x = static_cast<float>(static_cast<double>(rng.below(4'000) + rng.below(4'000)) * 1e-3 - 4);
  }
  return row;
}

class SamplerTest : public ::testing::Test {
 protected:
  Result<SampledToken> sample(const SamplingParams& params, const std::vector<float>& row,
                              uint32_t position = 0) {
    EXPECT_TRUE(params.validate(static_cast<uint32_t>(row.size())).ok());
    return RequestSampler(params, static_cast<uint32_t>(row.size()), {})
        .sample(row, position, scratch_);
  }
  TokenId token(const SamplingParams& params, const std::vector<float>& row,
                uint32_t position = 0) {
    return sample(params, row, position).value().token;
  }

  const std::vector<TokenId> prompt_ = {1, 2, 3};
  SamplerScratch scratch_{testing::scans().back()};
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST_F(SamplerTest, GreedyIsTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(token(greedy(), {1, 3, 2, 3}), 1);
  EXPECT_EQ(token(greedy(), {kOut, kOut, -7}), 2);
  EXPECT_EQ(token(greedy(), {5}), 0);
  std::vector<float> row = bell_row(49'152, 1);
  for (const size_t at : {0u, 17u, 49'151u}) {
    row[at] = 9;
    EXPECT_EQ(token(greedy(), row), static_cast<TokenId>(at));
    row[at] = 0;
  }
}

TEST_F(SamplerTest, TopKOfOneAndATinyTemperatureAreGreedy) {
  const std::vector<float> row = bell_row(5'000, 2);
  const TokenId best = token(greedy(), row);
  SamplingParams one;
  one.top_k = 1;
  SamplingParams cold;
  cold.temperature = 1e-44F;  // its inverse is no float
  for (uint32_t position = 0; position < 100; ++position) {
    EXPECT_EQ(token(one, row, position), best);
    EXPECT_EQ(token(cold, row, position), best);
  }
}

// Pearson's statistic against the quantile of 1 in 10,000 (Wilson and Hilferty); tokens with fewer
// than 5 expected draws count together.
void expect_distribution(const std::map<TokenId, int>& drawn, int draws,
                         const testing::Distribution& expected) {
  double statistic = 0;
  double rest_expected = 0;
  double rest_drawn = draws;
  int cells = 0;
  for (const auto& [token, share] : expected) {
    const double want = share * draws;
    if (want < 5) {
      rest_expected += want;
      continue;
    }
    const auto found = drawn.find(token);
    const double got = found == drawn.end() ? 0 : found->second;
    rest_drawn -= got;
    statistic += (got - want) * (got - want) / want;
    ++cells;
  }
  if (rest_expected > 0) {
    const double difference = rest_drawn - rest_expected;
    statistic += difference * difference / std::max(rest_expected, 1.0);
    ++cells;
  } else {
    EXPECT_EQ(rest_drawn, 0) << "drawn, but not possible";
  }
  const double freedom = std::max(cells - 1, 1);
  const double root = 1 - 2 / (9 * freedom) + 3.719 * std::sqrt(2 / (9 * freedom));
  EXPECT_LT(statistic, freedom * root * root * root) << cells << " cells";
}

std::vector<SamplingParams> several_params() {
  std::vector<SamplingParams> all(8);
  all[1].temperature = 0.5F;
  all[2].temperature = 3;
  all[3].top_k = 20;
  all[4].top_p = 0.6F;
  all[5].min_p = 0.1F;
  all[6].typical_p = 0.7F;
  all[7].temperature = 0.8F, all[7].top_k = 50, all[7].top_p = 0.9F, all[7].min_p = 0.02F;
  return all;
}

TEST_F(SamplerTest, DrawsFollowTheDistribution) {
  constexpr int kDraws = 10'000;
  for (const size_t size : {5u, 200u, 1'500u}) {
    const std::vector<float> row = bell_row(size, 10 + size);
    for (const SamplingParams& params : several_params()) {
      SCOPED_TRACE(::testing::Message()
                   << size << " tokens, temperature " << params.temperature << ", top_k "
                   << params.top_k << ", top_p " << params.top_p << ", min_p " << params.min_p
                   << ", typical_p " << params.typical_p);
      const testing::Distribution expected = testing::slow_distribution(row, params);
      std::map<TokenId, int> by_position;
      std::map<TokenId, int> by_seed;
      SamplingParams seeded = params;
      const RequestSampler sampler(params, static_cast<uint32_t>(size), {});
      for (int i = 0; i < kDraws; ++i) {
        ++by_position[sampler.sample(row, static_cast<uint32_t>(i), scratch_)->token];
        seeded.seed = static_cast<uint64_t>(i);
        if (size < 1'000) ++by_seed[token(seeded, row, 3)];
      }
      expect_distribution(by_position, kDraws, expected);
      if (size < 1'000) expect_distribution(by_seed, kDraws, expected);
    }
  }
}

TEST_F(SamplerTest, SeedChoiceAndPositionDecide) {
  const std::vector<float> row = bell_row(1'000, 3);
  const auto tokens = [&](uint64_t seed, uint32_t choice) {
    SamplingParams params;
    params.temperature = 2;
    params.seed = seed;
    params.choice = choice;
    std::vector<TokenId> out;
    for (uint32_t position = 0; position < 32; ++position) {
      out.push_back(token(params, row, position));
    }
    return out;
  };
  EXPECT_EQ(tokens(7, 0), tokens(7, 0));
  EXPECT_NE(tokens(7, 0), tokens(8, 0));
  EXPECT_NE(tokens(7, 0), tokens(7, 1));
  const std::vector<TokenId> one = tokens(7, 0);
  EXPECT_GT(std::set<TokenId>(one.begin(), one.end()).size(), 20u) << "positions differ";
}

TEST_F(SamplerTest, EveryInstructionSetDrawsTheSame) {
  const std::vector<float> row = bell_row(20'001, 4);
  for (const SamplingParams& params : several_params()) {
    for (uint32_t position = 0; position < 50; ++position) {
      std::set<TokenId> tokens;
      for (const VocabularyScan& scan : testing::scans()) {
        SamplerScratch scratch(scan);
        const RequestSampler sampler(params, static_cast<uint32_t>(row.size()), {});
        tokens.insert(sampler.sample(row, position, scratch)->token);
      }
      EXPECT_EQ(tokens.size(), 1u);
    }
  }
}

TEST_F(SamplerTest, BannedAllowedAndBias) {
  SamplingParams params = greedy();
  params.banned = {1};
  EXPECT_EQ(token(params, {1, 9, 2, 5}), 3);
  params.allowed = {2, 1, 2, 0};
  EXPECT_EQ(token(params, {1, 9, 2, 5}), 2);
  params.logit_bias = {{0, 100}, {1, 100}};
  EXPECT_EQ(token(params, {1, 9, 2, 5}), 0) << "a bias brings back nothing that is banned";
  params = {};
  params.allowed = {1, 1, 2};
  std::map<TokenId, int> drawn;
  const std::vector<float> row = {3, 0, 0, 3};
  for (uint32_t position = 0; position < 20'000; ++position) ++drawn[token(params, row, position)];
  expect_distribution(drawn, 20'000, {{1, 0.5}, {2, 0.5}});
  params = {};
  params.logit_bias = {{2, std::log(3.0F)}};
  drawn.clear();
  for (uint32_t i = 0; i < 20'000; ++i) ++drawn[token(params, {1, 1, 1}, i)];
  expect_distribution(drawn, 20'000, {{0, 0.2}, {1, 0.2}, {2, 0.6}});
}

TEST_F(SamplerTest, StopTokensEndUnlessTheyAreHeldOffOrIgnored) {
  SamplingParams params = greedy();
  params.stop_ids = {4, 2};
  const std::vector<float> row = {0, 1, 9, 3, 8};
  SampledToken out = sample(params, row).value();
  EXPECT_EQ(out.token, 2);
  EXPECT_TRUE(out.stop);
  params.min_tokens = 3;
  out = sample(params, row, 2).value();
  EXPECT_EQ(out.token, 3);
  EXPECT_FALSE(out.stop);
  EXPECT_EQ(token(params, row, 3), 2);
  const RequestSampler after_prompt(params, 5, prompt_);
  EXPECT_EQ(after_prompt.sample(row, 5, scratch_)->token, 3) << "the prompt's tokens do not count";
  EXPECT_EQ(after_prompt.sample(row, 6, scratch_)->token, 2);
  params.ignore_eos = true;
  out = sample(params, row, 0).value();
  EXPECT_EQ(out.token, 2);
  EXPECT_FALSE(out.stop);
}

TEST_F(SamplerTest, RepetitionPenaltyIsOverPromptAndAnswer) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  const std::vector<float> row = {4, 3, -1, -1.5F};
  const std::vector<TokenId> prompt = {0, 0, 2};
  RequestSampler sampler(params, 4, prompt);
  EXPECT_EQ(sampler.sample(row, 0, scratch_)->token, 1) << "4 / 2, once for both";
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(row, 1, scratch_)->token, 0) << "2 and 1.5";
  const std::vector<float> negative = {-9, -9, -1, -1.5F};
  EXPECT_EQ(sampler.sample(negative, 1, scratch_)->token, 3) << "-1 * 2";
}

TEST_F(SamplerTest, PresenceAndFrequencyPenaltiesAreOverTheAnswer) {
  SamplingParams params = greedy();
  params.presence_penalty = 1;
  params.frequency_penalty = 0.5F;
  const std::vector<float> row = {5, 4, 3, 0};
  const std::vector<TokenId> prompt = {0, 0};
  RequestSampler sampler(params, 4, prompt);
  std::vector<TokenId> drawn;
  for (uint32_t position = 0; position < 6; ++position) {
    drawn.push_back(sampler.sample(row, position, scratch_)->token);
    sampler.accept(drawn.back());
  }
  // 5 4 3 -> 3.5 4 3 -> 3.5 2.5 3 -> 3 2.5 3 -> 2.5 2.5 3 -> 2.5 2.5 1.5 -> 2 2.5 1.5
  EXPECT_THAT(drawn, ElementsAre(0, 1, 0, 0, 2, 0));
  params.presence_penalty = -2;
  params.frequency_penalty = 0;
  RequestSampler fond(params, 4, prompt);
  fond.accept(1);
  EXPECT_EQ(fond.sample(row, 1, scratch_)->token, 1) << "a negative one draws";
}

TEST_F(SamplerTest, ThePromptCountsForTheRepetitionPenaltyAlone) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  params.frequency_penalty = 1;
  const std::vector<TokenId> prompt = {0, 0, 0};
  RequestSampler sampler(params, 2, prompt);
  const std::vector<float> row = {4, 1.5F};
  EXPECT_EQ(sampler.sample(row, 0, scratch_)->token, 0) << "4 / 2";
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(row, 1, scratch_)->token, 1) << "4 / 2 - 1 - 1";
}

TEST_F(SamplerTest, ExtremesOfEveryRangeMakeNoLogitInfinite) {
  std::vector<float> row = bell_row(50, 3);
  row[4] = 3e4F;  // far beyond what models give
  row[5] = -3e4F;
  std::vector<TokenId> prompt(50);
  for (TokenId id = 0; id < 50; ++id) prompt[static_cast<size_t>(id)] = id;
  for (const float temperature : {std::numeric_limits<float>::denorm_min(), 1e-30F, 100.0F}) {
    for (const float penalty : {kMinRepetitionPenalty, kMaxRepetitionPenalty}) {
      for (const float sign : {-1.0F, 1.0F}) {
        SamplingParams params;
        params.temperature = temperature;
        params.repetition_penalty = penalty;
        params.presence_penalty = 2 * sign;
        params.frequency_penalty = 2 * sign;
        params.logit_bias = {{4, 100 * sign}, {5, -100 * sign}};
        ASSERT_TRUE(params.validate(50).ok());
        RequestSampler sampler(params, 50, prompt);
        for (uint32_t i = 0; i < 300; ++i) sampler.accept(4);
        const auto out = sampler.sample(row, 300, scratch_);
        EXPECT_TRUE(out.ok()) << temperature << " " << penalty << ": " << out.message();
      }
    }
  }
}

TEST_F(SamplerTest, PenaltiesRememberThousandsOfTokens) {
  SamplingParams params = greedy();
  params.presence_penalty = 2;
  const std::vector<float> row(3'000, 1.0F);
  RequestSampler sampler(params, 3'000, {});
  for (TokenId expected = 0; expected < 3'000; ++expected) {
    ASSERT_EQ(sampler.sample(row, 0, scratch_)->token, expected);
    sampler.accept(expected);
  }
  EXPECT_EQ(sampler.sample(row, 0, scratch_)->token, 0) << "all of them once";
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> row = bell_row(30'000, 5);
  SamplingParams params;
  params.temperature = 0.3F;
  params.top_k = 3;
  params.logprobs = true;
  params.top_logprobs = 20;
  const TokenId best = token(greedy(), row);
  params.banned = {best};
  const SampledToken out = sample(params, row).value();
  SamplingParams plain;
  const testing::Distribution raw = testing::slow_distribution(row, plain);
  EXPECT_NE(out.token, best);
  EXPECT_NEAR(out.logprob, std::log(raw.at(out.token)), 1e-5);
  ASSERT_EQ(out.top_count, 20u);
  EXPECT_EQ(out.top[0].token, best);
  for (uint32_t i = 0; i < out.top_count; ++i) {
    EXPECT_NEAR(out.top[i].logprob, std::log(raw.at(out.top[i].token)), 1e-5);
    EXPECT_GE(out.top[i == 0 ? 0 : i - 1].logprob, out.top[i].logprob);
  }
  params.banned.clear();
  EXPECT_EQ(sample(params, {1, 2, kOut})->top_count, 2u) << "what cannot be is not listed";
}

TEST_F(SamplerTest, ALogitThatIsNoNumberIsNamedWhereItCounts) {
  SamplingParams filtered;
  filtered.top_k = 2;
  for (const SamplingParams& params : {greedy(), SamplingParams(), filtered}) {
    for (const float bad : {kNan, kInf}) {
      std::vector<float> row(100, 1.0F);
      row[77] = bad;
      const auto out = sample(params, row);
      ASSERT_FALSE(out.ok());
      EXPECT_EQ(out.status().code(), Code::kInternal);
      EXPECT_THAT(out.message(), HasSubstr("the logit of token 77 is"));
      SamplingParams without = params;
      without.banned = {77};
      EXPECT_TRUE(sample(without, row).ok());
      without.banned.clear();
      without.allowed = {3, 5};
      EXPECT_TRUE(sample(without, row).ok());
      without.logprobs = true;
      EXPECT_FALSE(sample(without, row).ok()) << "the sum of all is no number";
    }
  }
}

TEST_F(SamplerTest, ParametersMayLeaveNothing) {
  SamplingParams params;
  params.allowed = {1};
  params.banned = {1};
  const auto out = sample(params, {0, 0, 0});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(out.message(), HasSubstr("no token may be drawn"));
  EXPECT_FALSE(sample(greedy(), {kOut, kOut}).ok());
}

TEST_F(SamplerTest, AllocatesNothingOnceItHasSeenTheVocabulary) {
  std::vector<float> rows[2] = {bell_row(49'152, 6), std::vector<float>(49'152, 1.0F)};
  std::vector<SamplingParams> all = several_params();
  all.push_back(greedy());
  all.emplace_back();
  all.back().logprobs = true, all.back().top_logprobs = 20, all.back().banned = {4};
  all.back().repetition_penalty = 1.1F, all.back().stop_ids = {5}, all.back().min_tokens = 100;
  std::vector<RequestSampler> samplers;
  for (const SamplingParams& params : all) samplers.emplace_back(params, 49'152, prompt_);
  for (RequestSampler& sampler : samplers) {  // warm-up: one token each
    const auto out = sampler.sample(rows[0], 0, scratch_);
    sampler.accept(out->token);
  }
  for (RequestSampler& sampler : samplers) {
    for (const std::vector<float>& row : rows) {
      const uint64_t before = sim::allocations();
      bool ok = true;
      for (uint32_t position = 1; position < 4; ++position) {
        const auto out = sampler.sample(row, position, scratch_);
        ok = ok && out.ok();
        sampler.accept(out->token);
      }
      EXPECT_TRUE(ok);
      EXPECT_EQ(sim::allocations(), before);
    }
  }
}

}  // namespace
}  // namespace skein
