// Every family against Hugging Face transformers, from both of its files.
#include "model/goldens.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/runner.h"

namespace skein {
namespace {

using testing::Feed;
using testing::Golden;
using testing::GoldenCase;
using testing::Runner;

constexpr double kRelativeL2 = 1e-4;
constexpr float kTie = 1e-3F;

double relative_l2(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(double{got[i]} - want[i], 2);
    size += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(difference / size);
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void check_case(Runner& runner, const GoldenCase& golden, double& worst) {
  Feed feed = Runner::feed(static_cast<uint32_t>(golden.prompt.size() + golden.greedy.size()));
  const auto logits = runner.step(feed, golden.prompt);
  ASSERT_EQ(logits.back().size(), golden.logits_last.size());
  const double error = relative_l2(logits.back(), golden.logits_last);
  worst = std::max(worst, error);
  EXPECT_LT(error, kRelativeL2);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto best = static_cast<size_t>(golden.argmax_all[i]);
    const float lead = logits[i][static_cast<size_t>(argmax(logits[i]))] - logits[i][best];
    EXPECT_LT(lead, kTie) << "argmax at position " << i;
  }
  std::vector<float> last = logits.back();
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    if (golden.greedy_margins[i] < kTie) break;
    const TokenId token = argmax(last);
    ASSERT_EQ(token, golden.greedy[i]) << "greedy token " << i;
    last = runner.step(feed, {&token, 1}).back();
  }
}

void check_file(const Golden& golden, const std::string& path) {
  SCOPED_TRACE(path);
  Runner runner(path, Precision::kF32);
  ASSERT_TRUE(runner.status().ok()) << runner.status().message();
  ASSERT_EQ(golden.cases.size(), 7u);
  double worst = 0;
  for (const GoldenCase& item : golden.cases) {
    SCOPED_TRACE(::testing::Message() << "prompt of " << item.prompt.size());
    check_case(runner, item, worst);
  }
  ::testing::Test::RecordProperty(golden.name, std::to_string(worst));
  std::cout << path << ": relative L2 at most " << worst << "\n";
}

TEST(Goldens, EveryFolderOfSafetensors) {
  testing::check_folders(check_file);
}

TEST(Goldens, EveryGgufTwin) {
  testing::check_ggufs(check_file);
}

// The largest distance from the golden logits among a family's prompts, but for the longest, which
// takes the reference as long as all others.
double distance(const Golden& golden, Precision precision, Runner::Arithmetic arithmetic) {
  Runner runner(golden.folder, precision, KvType::kBf16, arithmetic);
  EXPECT_TRUE(runner.status().ok()) << runner.status().message();
  double worst = 0;
  for (const GoldenCase& item : golden.cases) {
    constexpr size_t kLong = 64;
    if (item.prompt.size() > kLong) continue;
    Feed feed = Runner::feed(static_cast<uint32_t>(item.prompt.size()));
    worst = std::max(worst, relative_l2(runner.step(feed, item.prompt).back(), item.logits_last));
  }
  return worst;
}

// What a GPU computes at the default precision, by its model on the CPU: no further away than 1.5
// times what a cache of bfloat16 does to float32, but for the random gemma2, which is at 1.8.
TEST(Goldens, InTheProfileOfAGpuAreAsNearAsItsCacheLetsThem) {
  for (const Golden& golden : testing::goldens()) {
    if (!golden.has("config.json")) continue;
    const double own = distance(golden, Precision::kDefault, Runner::Arithmetic::kHopper);
    const double cache = distance(golden, Precision::kF32, Runner::Arithmetic::kCpu);
    std::cout << golden.name << ": relative L2 " << own << ", with float32 and such a cache "
              << cache << "\n";
    EXPECT_LE(own, (golden.name == "gemma2" ? 2.0 : 1.5) * cache) << golden.name;
  }
}

}  // namespace
}  // namespace skein
