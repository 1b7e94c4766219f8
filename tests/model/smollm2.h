// The default model's reference prompts, and what a float32 run of its dequantized weights said.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <vector>

#include "format/json.h"
#include "model/goldens.h"
#include "model/runner.h"

namespace skein::testing {

inline constexpr float kSmolLm2Tie = 0.01F;
inline constexpr size_t kSmolLm2Chunk = 64;  // leaves the whole continuation to the last chunk

inline TokenId best_token(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline double log_probability(const std::vector<float>& logits, TokenId token) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - best);
  return double{logits[static_cast<size_t>(token)]} - best - std::log(sum);
}

// Feeds the prompt and the tokens that follow it in one chunk, which gives the bits of one token at
// a time (determinism_test.cpp) in a fraction of the time.
inline void check_smollm2_case(Runner& runner, const Json& item, size_t& equal) {
  std::vector<TokenId> tokens = item["ids"];
  const std::vector<TokenId> greedy = item["f32"]["greedy"];
  const std::vector<float> margins = item["f32"]["margins"];
  const auto tie =
      std::find_if(margins.begin(), margins.end(), [](float m) { return m < kSmolLm2Tie; });
  const size_t sure = static_cast<size_t>(tie - margins.begin());
  tokens.insert(tokens.end(), greedy.begin(), greedy.begin() + static_cast<std::ptrdiff_t>(sure));
  Feed feed = Runner::feed(static_cast<uint32_t>(tokens.size()));
  std::span<const TokenId> rest = tokens;
  for (; rest.size() > Runner::kRows; rest = rest.subspan(kSmolLm2Chunk)) {
    runner.step_from(feed, rest.first(kSmolLm2Chunk), kSmolLm2Chunk);
  }
  const auto logits = runner.step_from(feed, rest, rest.size() - sure - 1);
  for (const Json& entry : item["top10"]) {
    EXPECT_NEAR(log_probability(logits[0], entry[0]), entry[1].get<double>(), 1e-4);
  }
  for (size_t i = 0; i < sure; ++i, ++equal) {
    ASSERT_EQ(best_token(logits[i]), greedy[i]) << "token " << i;
  }
}

inline Json smollm2_cases() {
  std::ifstream in(kSmolLm2Reference);
  return Json::parse(in)["cases"];
}

}  // namespace skein::testing
