#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "engine/drawn.h"
#include "engine/sampling/sampler.h"
#include "engine/scans.h"

namespace skein {
namespace {

SamplingParams greedy_params() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// What the peak alone decides: each parameter that looks at more, or changes rows, takes it away.
TEST(SamplerPeak, ThePeakIsTakenWhereNothingElseCounts) {
  const std::vector<float> row = {0, 1, 9, 3, 9};
  const std::vector<TokenId> prompt = {1, 2, 3};
  SamplerScratch scratch{testing::scans().back()};
  const VocabularyScan::Argmax peak = testing::scans().back().argmax(row);
  const auto takes = [](const SamplingParams& params, uint32_t position = 0) {
    return RequestSampler(params, 5, {}).takes_peak(position);
  };
  SamplingParams params = greedy_params();
  for (const bool stops : {false, true}) {
    if (stops) params.stop_ids = {2};
    ASSERT_TRUE(takes(params));
    const SampledToken want = RequestSampler(params, 5, {}).sample(row, 0, scratch).value();
    const SampledToken got =
        RequestSampler(params, 5, {}).sample_found(static_cast<TokenId>(peak.index));
    EXPECT_EQ(got.token, want.token);
    EXPECT_EQ(got.stop, want.stop);
    EXPECT_EQ(got.stop, stops);
  }
  params.min_tokens = 2;
  EXPECT_FALSE(takes(params, 1)) << "stops are held off";
  EXPECT_TRUE(takes(params, 2));
  params.ignore_eos = true;
  EXPECT_TRUE(takes(params, 1));
  EXPECT_FALSE(
      RequestSampler(params, 5, prompt).sample_found(static_cast<TokenId>(peak.index)).stop);
  using Change = void (*)(SamplingParams&);
  const Change changes[] = {
      [](SamplingParams& p) { p.temperature = 0.1F; },
      [](SamplingParams& p) { p.logprobs = true; },
      [](SamplingParams& p) { p.allowed = {1, 2}; },
      [](SamplingParams& p) { p.banned = {1}; },
      [](SamplingParams& p) { p.logit_bias = {{1, 1.0F}}; },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    SamplingParams changed = greedy_params();
    changes[i](changed);
    ASSERT_TRUE(changed.validate(5).ok());
    EXPECT_FALSE(takes(changed)) << i;
  }
  params = greedy_params();
  params.presence_penalty = 1;
  RequestSampler penalized(params, 5, prompt);
  EXPECT_TRUE(penalized.takes_peak(3)) << "there is no answer yet";
  EXPECT_FALSE(penalized.takes_peak(4, std::vector<TokenId>{2}));
  penalized.accept(2);
  EXPECT_FALSE(penalized.takes_peak(4));
}

// A device may draw where nothing but temperature, top_k, top_p, min_p and the seed counts: what it
// is given is what sample() draws with.
TEST(SamplerPeak, ADrawIsAllOfPlainSampling) {
  const auto only_draws = [](const SamplingParams& params) {
    return RequestSampler(params, 5, {}).only_draws();
  };
  EXPECT_TRUE(only_draws(greedy_params()));
  SamplingParams params;
  params.temperature = 0.7F;
  params.top_k = 4;
  params.top_p = 0.95F;
  params.min_p = 0.05F;
  params.seed = 9;
  params.choice = 2;
  EXPECT_TRUE(only_draws(params));
  const RequestSampler sampler(params, 5, {});
  const std::vector<float> row = {0, 1.5F, 2, 1, 2};
  const VocabularyScan scan = testing::scans().back();
  SamplerScratch scratch{scan};
  std::vector<uint32_t> drawn(5);
  for (uint32_t position = 0; position < 200; ++position) {
    const TokenId token = sampler.sample(row, position, scratch).value().token;
    EXPECT_EQ(testing::drawn_from(row, sampler.draw_at(position), scan), token);
    ++drawn[static_cast<size_t>(token)];
  }
  EXPECT_EQ(drawn[0], 0U);
  EXPECT_GT(*std::min_element(drawn.begin() + 1, drawn.end()), 0U);
  using Change = void (*)(SamplingParams&);
  const Change changes[] = {
      [](SamplingParams& p) { p.logprobs = true; },
      [](SamplingParams& p) { p.typical_p = 0.9F; },
      [](SamplingParams& p) { p.temperature = 0x1p-21F; },
      [](SamplingParams& p) {
        p.allowed = {1, 2};
      },
      [](SamplingParams& p) { p.banned = {1}; },
      [](SamplingParams& p) {
        p.logit_bias = {{1, 1.0F}};
      },
      [](SamplingParams& p) { p.repetition_penalty = 1.1F; },
      [](SamplingParams& p) { p.presence_penalty = 1; },
      [](SamplingParams& p) { p.frequency_penalty = 1; },
      [](SamplingParams& p) { p.min_tokens = 1, p.stop_ids = {3}; },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    SamplingParams changed = params;
    changes[i](changed);
    ASSERT_TRUE(changed.validate(5).ok());
    EXPECT_FALSE(only_draws(changed)) << i;
  }
}

}  // namespace
}  // namespace skein
