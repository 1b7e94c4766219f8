#include <gtest/gtest.h>
#include <vector>

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
    const SampledToken got = RequestSampler(params, 5, {}).sample_peak(peak);
    EXPECT_EQ(got.token, want.token);
    EXPECT_EQ(got.stop, want.stop);
    EXPECT_EQ(got.stop, stops);
  }
  params.min_tokens = 2;
  EXPECT_FALSE(takes(params, 1)) << "stops are held off";
  EXPECT_TRUE(takes(params, 2));
  params.ignore_eos = true;
  EXPECT_TRUE(takes(params, 1));
  EXPECT_FALSE(RequestSampler(params, 5, prompt).sample_peak(peak).stop);
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

}  // namespace
}  // namespace skein
