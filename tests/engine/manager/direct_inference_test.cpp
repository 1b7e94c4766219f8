#include "engine/manager/direct_inference.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "engine/even_clock.h"
#include "engine/models.h"
#include "engine/tiny_model.h"
#include "model/goldens.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestFolder;
using Tokens = std::vector<TokenId>;

Tokens numbers(size_t count, TokenId from = 0) {
  Tokens ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>((from + 7 * i) % 250);
  return ids;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

class DirectInferenceTest : public ::testing::Test {
 protected:
  std::unique_ptr<DirectInference> make(DecoderLimits limits = {}) {
    ModelOptions options;
    options.limits = limits;
    auto model = LoadedModel::load(testing::write_tiny_model(folder_), options, pool_);
    EXPECT_TRUE(model.ok()) << model.message();
    models_.push_back(std::move(*model));
    auto direct = DirectInference::create(*models_.back(), clock_);
    EXPECT_TRUE(direct.ok()) << direct.message();
    return std::move(*direct);
  }

  struct Run {
    Tokens tokens;
    DirectOutcome outcome;
  };
  Run generate(DirectInference& direct, const Tokens& prompt, const SamplingParams& params,
               std::optional<uint32_t> max_tokens, const Hash128& salt = {},
               bool speculates = false, uint64_t tenant = 0) {
    Run run;
    const auto on_token = [&](const SampledToken& t) {
      run.tokens.push_back(t.token);
      return true;
    };
    DirectRequest request{prompt, params, max_tokens, salt};
    request.speculates = speculates;
    request.tenant = tenant;
    const auto outcome = direct.generate(request, on_token);
    EXPECT_TRUE(outcome.ok()) << outcome.message();
    if (outcome.ok()) run.outcome = *outcome;
    return run;
  }

  TestFolder folder_;
  ComputePool pool_{2};
  testing::EvenClock clock_;
  std::vector<std::unique_ptr<LoadedModel>> models_;
};

TEST_F(DirectInferenceTest, CountsAndEndsWithLength) {
  const auto direct = make();
  const Run run = generate(*direct, numbers(40), greedy(), 20);
  EXPECT_EQ(run.tokens.size(), 20u);
  EXPECT_EQ(run.outcome.reason, FinishReason::kLength);
  EXPECT_EQ(run.outcome.prompt_tokens, 40u);
  EXPECT_EQ(run.outcome.cached_tokens, 0u);
  EXPECT_EQ(run.outcome.generated_tokens, 20u);
  EXPECT_GT(run.outcome.prefill_us, 0);
  EXPECT_GT(run.outcome.decode_us, 0);
}

TEST_F(DirectInferenceTest, ChunksOfThePromptChangeNothing) {
  SamplingParams params;
  params.seed = 5;
  Tokens expected;
  for (const uint32_t rows : {256u, 1u, 7u, 33u}) {
    const auto direct = make({.rows = rows, .logit_rows = 1});
    const Run run = generate(*direct, numbers(100), params, 30);
    if (expected.empty()) expected = run.tokens;
    EXPECT_EQ(run.tokens, expected) << rows << " rows a step";
  }
}

// Where prefixes are shared all tenants have one salt.
TEST_F(DirectInferenceTest, NobodyGuessesFromAnothersAnswers) {
  const auto direct = make({.rows = 256, .logit_rows = 32});
  // How many guesses are computed depends on what they cost, so there are several texts.
  const auto accepted = [&](uint64_t tenant) {
    uint32_t sum = 0;
    for (TokenId first = 0; first < 5; ++first) {
      const Run run = generate(*direct, numbers(40, first), greedy(), 120, {}, true, tenant);
      sum += run.outcome.accepted_tokens;
    }
    return sum;
  };
  (void)accepted(1);
  const uint32_t own = accepted(1);
  EXPECT_GT(own, 100u) << "its own answers are known";
  EXPECT_LT(accepted(2), own / 2);
}

TEST_F(DirectInferenceTest, GuessesChangeNothing) {
  uint32_t accepted = 0;
  for (const uint32_t rows : {256u, 5u, 1u}) {
    const auto plain = make({.rows = rows, .logit_rows = std::min(rows, 32u)});
    const auto guessing = make({.rows = rows, .logit_rows = std::min(rows, 32u)});
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SamplingParams params = greedy();
      if (seed % 2 == 1) params.temperature = 0.3F;
      params.seed = seed;
      params.repetition_penalty = seed % 3 == 2 ? 1.05F : 1;
      params.stop_ids = {static_cast<TokenId>(seed)};
      Tokens prompt = numbers(10, static_cast<TokenId>(seed));
      for (int i = 0; i < 2; ++i) {
        const Tokens half = prompt;
        prompt.insert(prompt.end(), half.begin(), half.end());
      }
      const Run expected = generate(*plain, prompt, params, 120);
      // Twice: the second time the whole answer has been said before.
      for (int i = 0; i < 2; ++i) {
        const Run run = generate(*guessing, prompt, params, 120, {}, true);
        EXPECT_EQ(run.tokens, expected.tokens) << "seed " << seed;
        EXPECT_EQ(run.outcome.reason, expected.outcome.reason);
        EXPECT_LE(run.outcome.accepted_tokens, run.outcome.drafted_tokens);
        accepted += run.outcome.accepted_tokens;
        if (rows == 1) {
          EXPECT_EQ(run.outcome.drafted_tokens, 0u);
        }
      }
      EXPECT_EQ(expected.outcome.drafted_tokens, 0u);
    }
  }
  EXPECT_GT(accepted, 500u);
}

TEST_F(DirectInferenceTest, WhatIsCachedIsUsedAgainAndChangesNothing) {
  const auto direct = make();
  const auto fresh = make();
  Tokens prompt = numbers(50);
  const Run first = generate(*direct, prompt, greedy(), 20);
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  const Tokens more = numbers(10, 3);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const Run second = generate(*direct, prompt, greedy(), 20);
  EXPECT_EQ(second.outcome.cached_tokens, 69u)
      << "all but the last generated token, never computed";
  EXPECT_EQ(second.tokens, generate(*fresh, prompt, greedy(), 20).tokens);
  const Run again = generate(*direct, prompt, greedy(), 20);
  EXPECT_EQ(again.outcome.cached_tokens, 79u) << "one token is computed for its logits";
  EXPECT_EQ(again.tokens, second.tokens);
  const Tokens other = numbers(60, 1);
  const Run third = generate(*direct, other, greedy(), 20);
  EXPECT_EQ(third.outcome.cached_tokens, 0u);
  EXPECT_EQ(third.tokens, generate(*fresh, other, greedy(), 20).tokens);
}

TEST_F(DirectInferenceTest, WhatAnotherTenantLeftIsNeverUsed) {
  const auto direct = make();
  const Hash128 victim{1, 2};
  const Hash128 spy{1, 3};
  const Tokens prompt = numbers(50);
  const Run first = generate(*direct, prompt, greedy(), 5, victim);
  EXPECT_EQ(generate(*direct, prompt, greedy(), 5, victim).outcome.cached_tokens, 49u);
  const Run guess = generate(*direct, prompt, greedy(), 5, spy);
  EXPECT_EQ(guess.outcome.cached_tokens, 0u);
  EXPECT_EQ(guess.tokens, first.tokens);
  EXPECT_EQ(generate(*direct, prompt, greedy(), 5, spy).outcome.cached_tokens, 49u);
  EXPECT_EQ(generate(*direct, prompt, greedy(), 5, victim).outcome.cached_tokens, 0u);
}

TEST_F(DirectInferenceTest, SeedsDecide) {
  const auto direct = make();
  SamplingParams params;
  params.seed = 1;
  const Tokens one = generate(*direct, numbers(10), params, 40).tokens;
  EXPECT_EQ(generate(*direct, numbers(10), params, 40).tokens, one);
  params.choice = 1;
  EXPECT_NE(generate(*direct, numbers(10), params, 40).tokens, one);
  params.choice = 0;
  params.seed = 2;
  EXPECT_NE(generate(*direct, numbers(10), params, 40).tokens, one);
}

TEST_F(DirectInferenceTest, AnAnswerThatIsCutGoesOnWithTheSameTokens) {
  const auto direct = make();
  const auto other = make();
  SamplingParams params;
  params.seed = 3;
  params.repetition_penalty = 1.1F;
  Tokens prompt = numbers(20);
  const Tokens whole = generate(*direct, prompt, params, 30).tokens;
  const Tokens head = generate(*direct, prompt, params, 11).tokens;
  prompt.insert(prompt.end(), head.begin(), head.end());
  const Tokens tail = generate(*other, prompt, params, 19).tokens;
  EXPECT_EQ(head, Tokens(whole.begin(), whole.begin() + 11));
  EXPECT_EQ(tail, Tokens(whole.begin() + 11, whole.end()));
}

TEST_F(DirectInferenceTest, AStopTokenEndsAndIsNoPartOfTheAnswer) {
  const auto direct = make();
  const Tokens free = generate(*direct, numbers(30), greedy(), 12).tokens;
  SamplingParams params = greedy();
  params.stop_ids = {free[5]};
  const Run run = generate(*direct, numbers(30), params, 12);
  const auto first = std::find(free.begin(), free.end(), free[5]);
  EXPECT_EQ(run.tokens, Tokens(free.begin(), first));
  EXPECT_EQ(run.outcome.reason, FinishReason::kStop);
  EXPECT_EQ(run.outcome.generated_tokens, run.tokens.size());
  params.ignore_eos = true;
  EXPECT_EQ(generate(*direct, numbers(30), params, 12).tokens, free);
}

TEST_F(DirectInferenceTest, TheCallerCanEndIt) {
  const auto direct = make();
  uint32_t seen = 0;
  const Tokens prompt = numbers(30);
  const auto stopped =
      direct->generate({prompt, greedy(), 50}, [&](const SampledToken&) { return ++seen < 3; });
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->reason, FinishReason::kStop);
  EXPECT_EQ(stopped->generated_tokens, 3u);

  std::atomic<bool> cancel = false;
  seen = 0;
  const auto cancelled = direct->generate(
      {prompt, greedy(), 50},
      [&](const SampledToken&) {
        cancel = ++seen == 4;
        return true;
      },
      &cancel);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->reason, FinishReason::kClient);
  EXPECT_EQ(cancelled->generated_tokens, 4u);

  const auto early = direct->generate(
      {numbers(80, 9), greedy(), 50}, [](const SampledToken&) { return true; }, &cancel);
  ASSERT_TRUE(early.ok());
  EXPECT_EQ(early->reason, FinishReason::kClient);
  EXPECT_EQ(early->generated_tokens, 0u);
}

TEST_F(DirectInferenceTest, GoesToTheEndOfTheContextUnlessToldOtherwise) {
  const auto direct = make();
  SamplingParams params = greedy();
  params.ignore_eos = true;
  const Run run = generate(*direct, numbers(500), params, {});
  EXPECT_EQ(run.tokens.size(), testing::kTinyContext - 500);
  EXPECT_EQ(run.outcome.reason, FinishReason::kLength);
  EXPECT_EQ(generate(*direct, numbers(511), params, 1).tokens.size(), 1u);
}

TEST_F(DirectInferenceTest, RefusesWhatCannotBe) {
  const auto direct = make();
  const auto refused = [&](const Tokens& prompt, const SamplingParams& params,
                           std::optional<uint32_t> max_tokens) {
    const auto out = direct->generate({prompt, params, max_tokens}, [](const SampledToken&) {
      ADD_FAILURE() << "a token";
      return true;
    });
    return out.status();
  };
  EXPECT_EQ(refused({}, greedy(), 5).message(), "the prompt has 0 tokens; it needs at least 1");
  EXPECT_EQ(refused({1}, greedy(), 0).message(), "max_tokens is 0; it must be at least 1");
  EXPECT_EQ(refused({1, 2, 272}, greedy(), 5).message(),
            "prompt token 2 has id 272; the vocabulary has 272");
  EXPECT_EQ(refused({-1}, greedy(), 5).message(),
            "prompt token 0 has id -1; the vocabulary has 272");
  const Status beyond = refused(numbers(500), greedy(), 13);
  EXPECT_EQ(beyond.code(), Code::kOutOfRange);
  EXPECT_EQ(beyond.message(),
            "prompt of 500 tokens plus 13 to generate is 513; the context holds 512");
  EXPECT_EQ(refused(numbers(512), greedy(), {}).code(), Code::kOutOfRange);
  SamplingParams params = greedy();
  params.top_p = 2;
  EXPECT_THAT(refused({1}, params, 5).message(), HasSubstr("top_p"));
  params = greedy();
  params.banned = {260};
  EXPECT_THAT(refused({1}, params, 5).message(), HasSubstr("banned has token 260"));
}

// A row whose logits are no numbers fails, and the next request is none the worse.
TEST_F(DirectInferenceTest, AFaultEndsOneRequestAlone) {
  const auto direct = make();
  SamplingParams params = greedy();
  params.allowed = {4};
  params.banned = {4};
  const Tokens prompt = numbers(5);
  const auto out = direct->generate({prompt, params, 5}, [](const SampledToken&) { return true; });
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(generate(*direct, prompt, greedy(), 5).tokens.size(), 5u);
}

TEST(DirectInference, GivesTheGoldenTokens) {
  const std::string folder = testing::kGoldens + "/llama";
  ComputePool pool(2);
  const SystemClock clock;
  ModelOptions options;
  options.precision = Precision::kF32;
  const auto model = LoadedModel::load(folder, options, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const auto direct = DirectInference::create(**model, clock);
  ASSERT_TRUE(direct.ok()) << direct.message();
  for (const testing::GoldenCase& c : testing::read_golden(folder).cases) {
    Tokens tokens;
    const auto outcome = (*direct)->generate({c.prompt, greedy(), 40}, [&](const SampledToken& t) {
      tokens.push_back(t.token);
      return true;
    });
    ASSERT_TRUE(outcome.ok()) << outcome.message();
    const auto tie = std::find_if(c.greedy_margins.begin(), c.greedy_margins.end(),
                                  [](float margin) { return margin < 1e-3F; });
    const auto sure = static_cast<size_t>(tie - c.greedy_margins.begin());
    ASSERT_EQ(tokens.size(), 40u);
    tokens.resize(sure);
    EXPECT_EQ(tokens, Tokens(c.greedy.begin(), c.greedy.begin() + static_cast<ptrdiff_t>(sure)));
  }
}

}  // namespace
}  // namespace skein
