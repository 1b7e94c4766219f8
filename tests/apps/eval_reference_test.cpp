// The default model against runs that are not skein's: the float32 run that the goldens hold, and
// a float64 computation made here.
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run_skein.h"
#include "format/test_folder.h"
#include "model/goldens.h"
#include "text/oracle.h"

namespace skein {
namespace {

using testing::run_command;
using testing::run_skein;
using testing::TestFolder;

class EvalReference : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEEDS_DEFAULT_MODEL();
    std::ifstream in(testing::kSmolLm2Reference);
    reference_ = nlohmann::json::parse(in);
  }

  TestFolder folder_;
  nlohmann::json reference_;
};

double log_sum_exp(const std::vector<float>& logits) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - logits[0]);
  return logits[0] + std::log(sum);
}

TEST_F(EvalReference, LogprobsAndGreedyTokensAreTheFloat32Runs) {
  constexpr size_t kSteps = 12;
  nlohmann::json prompts;
  for (const auto& c : reference_.at("cases")) prompts.push_back(c.at("ids"));
  const std::string ids = folder_.write("ids.json", prompts.dump());
  const auto run = run_skein(fmt::format(
      "eval logits --model default --precision f32 --json --greedy {} --tokens {}", kSteps, ids));
  ASSERT_EQ(run.status, 0) << run.output;
  const auto results = nlohmann::json::parse(run.output);
  ASSERT_EQ(results.size(), 42u);
  size_t compared = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& c = reference_.at("cases")[i];
    const std::vector<float> logits = results[i].at("logits_last");
    const double sum = log_sum_exp(logits);
    for (const auto& [token, logprob] :
         c.at("top10").get<std::vector<std::pair<size_t, double>>>()) {
      EXPECT_NEAR(logits[token] - sum, logprob, 1e-4) << "case " << i << ", token " << token;
    }
    const std::vector<double> margins = c.at("f32").at("margins");
    for (size_t t = 0; t < kSteps && margins[t] >= 0.01; ++t, ++compared) {
      EXPECT_EQ(results[i].at("greedy")[t], c.at("f32").at("greedy")[t]) << i << ", step " << t;
    }
  }
  EXPECT_GT(compared, 400u);
}

// DESIGN's bound is a mean KL of 1e-5. Float32 rounding is far below it.
TEST_F(EvalReference, KlToAFloat64RunIsRounding) {
  SKEIN_NEEDS_PYTHON();
  constexpr size_t kPositions = 256;
  std::vector<int> sequence = reference_.at("kl").at("sequences")[0];
  ASSERT_GE(sequence.size(), kPositions);
  sequence.resize(kPositions);
  const std::string ids = folder_.write("ids.json", nlohmann::json::array({sequence}).dump());
  const std::string exact = folder_ / "exact.npy";
  const auto made = run_command("'" + testing::kPython +
                                "' '" SKEIN_SOURCE_DIR "/tests/apps/float64_llama.py' '" +
                                testing::default_model_path() + "' " + ids + " " + exact + " 2>&1");
  ASSERT_EQ(made.status, 0) << made.output;
  const auto run = run_skein("eval kl --model default --precision f32 --json --tokens " + ids +
                             " --reference " + exact);
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  RecordProperty("mean_kl", json.at("mean_kl").dump());
  EXPECT_EQ(json.at("positions"), kPositions);
  EXPECT_LT(json.at("mean_kl"), 1e-9);
  EXPECT_LT(json.at("max_kl"), 1e-7);
  EXPECT_GT(json.at("same_top"), 0.995);
  EXPECT_NEAR(json.at("perplexity"), json.at("reference_perplexity"), 1e-3);
}

}  // namespace
}  // namespace skein
