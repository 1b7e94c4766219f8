// The default model on a GPU: its reference prompts in float32, and how far the default precision
// is from that.
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "engine/evaluation/evaluate.h"
#include "format/test_folder.h"
#include "model/smollm2.h"

namespace skein {
namespace {

using testing::Feed;
using testing::Runner;

class CudaDefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEEDS_DEFAULT_MODEL();
    const auto cuda = make_backend({.device = "cuda", .precision = Precision::kF32}, pool_);
    if (!cuda.ok()) GTEST_SKIP() << cuda.message();
  }
  std::unique_ptr<LoadedModel> load(Precision precision) {
    ModelOptions options;
    options.device = "cuda";
    options.precision = precision;
    options.limits = {.rows = 512, .logit_rows = 512};
    auto model = LoadedModel::load(testing::default_model_path(), options, pool_);
    EXPECT_TRUE(model.ok()) << model.message();
    return std::move(*model);
  }

  ComputePool pool_{8};
};

TEST_F(CudaDefaultModel, ContinuesAsTheFloat32RunDoes) {
  Runner cuda(testing::default_model_path(), Precision::kF32, KvType::kF32,
              Runner::Arithmetic::kCuda);
  ASSERT_TRUE(cuda.status().ok()) << cuda.status().message();
  const Json cases = testing::smollm2_cases();
  ASSERT_EQ(cases.size(), 42U);
  size_t equal = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    testing::check_smollm2_case(cuda, cases[i], equal);
  }
  std::cout << equal << " greedy tokens of " << cases.size() << " prompts are the float32 run's\n";
  EXPECT_GT(equal, 900U);
}

// One token after the other, as a server does; where float32 itself is not sure any may come, and
// all that follow.
TEST_F(CudaDefaultModel, AtTheDefaultPrecisionSaysTheSameTokens) {
  Runner cuda(testing::default_model_path(), Precision::kDefault, KvType::kBf16,
              Runner::Arithmetic::kCuda);
  if (!cuda.status().ok()) GTEST_SKIP() << cuda.status().message();
  constexpr float kUnsure = 0.1F;
  size_t equal = 0, all = 0, prompts = 0;
  const Json cases = testing::smollm2_cases();
  for (const Json& item : cases) {
    const std::vector<TokenId> prompt = item["ids"], greedy = item["f32"]["greedy"];
    const std::vector<float> margins = item["f32"]["margins"];
    Feed feed = Runner::feed(static_cast<uint32_t>(prompt.size() + greedy.size()));
    std::span<const TokenId> rest = prompt;
    for (; rest.size() > Runner::kRows; rest = rest.subspan(testing::kSmolLm2Chunk)) {
      cuda.step_from(feed, rest.first(testing::kSmolLm2Chunk), testing::kSmolLm2Chunk);
    }
    std::vector<float> logits = cuda.step_from(feed, rest, rest.size() - 1).back();
    size_t same = 0;
    for (; same < greedy.size() && margins[same] >= kUnsure; ++same, ++all) {
      const TokenId token = testing::best_token(logits);
      if (token != greedy[same]) break;
      ++equal;
      logits = cuda.step(feed, {&token, 1}).back();
    }
    if (same == greedy.size() || margins[same] < kUnsure) ++prompts;
  }
  std::cout << equal << " tokens, all of them for " << prompts << " of " << cases.size()
            << " prompts, are the float32 run's where that leads by " << kUnsure << "\n";
  EXPECT_EQ(prompts, cases.size());
}

TEST_F(CudaDefaultModel, AtTheDefaultPrecisionIsNearFloat32) {
  if (!make_backend({.device = "cuda"}, pool_).ok()) GTEST_SKIP() << "the device is no Hopper";
  std::ifstream in(testing::kSmolLm2Reference);
  const Json sequences = Json::parse(in)["kl"]["sequences"];
  const auto exact = load(Precision::kF32), fast = load(Precision::kDefault);
  const size_t vocab = exact->spec().vocab;
  Divergence divergence;
  for (const Json& sequence : sequences) {
    const std::vector<TokenId> ids = sequence;
    std::vector<float> want(ids.size() * vocab);
    const auto want_row = [&](uint32_t position) {
      return std::span(want).subspan(position * vocab, vocab);
    };
    const auto keep = [&](const Evaluator::Row& row) {
      std::copy(row.logits.begin(), row.logits.end(), want_row(row.position).begin());
    };
    const auto compare = [&](const Evaluator::Row& row) {
      divergence.add(want_row(row.position), row.logits, kNoToken);
    };
    ASSERT_TRUE(Evaluator(*exact).run({&ids, 1}, {.all = true}, keep).ok());
    ASSERT_TRUE(Evaluator(*fast).run({&ids, 1}, {.all = true}, compare).ok());
  }
  const Divergence::Summary summary = divergence.summary();
  std::cout << summary.positions << " positions: mean KL " << summary.mean_kl << ", p99 "
            << summary.p99_kl << ", largest " << summary.max_kl << ", same likeliest token "
            << summary.same_top << "\n";
  EXPECT_LE(summary.mean_kl, 2e-4);
  EXPECT_LE(summary.p99_kl, 3e-3);
  EXPECT_GT(summary.mean_kl, 1e-7) << "that would not be the default precision";
}

}  // namespace
}  // namespace skein
