// The default model against a float32 run of its dequantized weights.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/json.h"
#include "format/test_folder.h"
#include "model/goldens.h"
#include "model/runner.h"

namespace skein {
namespace {

using testing::Feed;
using testing::Runner;

constexpr float kTie = 0.01F;
constexpr size_t kChunk = 64;  // leaves the whole continuation to the last chunk
constexpr size_t kEvery = 3;   // of 42 cases, to keep this quick

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_probability(const std::vector<float>& logits, TokenId token) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - best);
  return double{logits[static_cast<size_t>(token)]} - best - std::log(sum);
}

// Feeds the prompt and the tokens that follow it in one chunk, which gives the bits of one token at
// a time (determinism_test.cpp) in a fraction of the time.
void check_case(Runner& runner, const Json& item, size_t& equal) {
  std::vector<TokenId> tokens = item["ids"];
  const std::vector<TokenId> greedy = item["f32"]["greedy"];
  const std::vector<float> margins = item["f32"]["margins"];
  const auto tie = std::find_if(margins.begin(), margins.end(), [](float m) { return m < kTie; });
  const size_t sure = static_cast<size_t>(tie - margins.begin());
  tokens.insert(tokens.end(), greedy.begin(), greedy.begin() + static_cast<std::ptrdiff_t>(sure));
  Feed feed = Runner::feed(static_cast<uint32_t>(tokens.size()));
  std::span<const TokenId> rest = tokens;
  for (; rest.size() > Runner::kRows; rest = rest.subspan(kChunk)) {
    runner.step_from(feed, rest.first(kChunk), kChunk);
  }
  const auto logits = runner.step_from(feed, rest, rest.size() - sure - 1);
  for (const Json& entry : item["top10"]) {
    EXPECT_NEAR(log_probability(logits[0], entry[0]), entry[1].get<double>(), 1e-4);
  }
  for (size_t i = 0; i < sure; ++i, ++equal) {
    ASSERT_EQ(argmax(logits[i]), greedy[i]) << "token " << i;
  }
}

TEST(SmolLm2, ContinuesAsTheFloat32RunDoes) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  Runner runner(testing::default_model_path(), Precision::kF32, Runner::Arithmetic::kCpuThreads);
  ASSERT_TRUE(runner.status().ok()) << runner.status().message();
  std::ifstream in(testing::kSmolLm2Reference);
  const Json cases = Json::parse(in)["cases"];
  size_t equal = 0;
  for (size_t i = 0; i < cases.size(); i += kEvery) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    check_case(runner, cases[i], equal);
  }
  EXPECT_GT(equal, 300u);
}

}  // namespace
}  // namespace skein
