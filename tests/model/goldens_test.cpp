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

// What a family says to its prompts, but for the longest, which takes the reference as long as all
// others.
struct Said {
  std::vector<float> all;   // the logits of every row, one row after the other
  double from_goldens = 0;  // the largest distance among the golden rows, which are the last ones

  Said(const Golden& golden, Precision precision, KvType type, Runner::Arithmetic arithmetic) {
    Runner runner(golden.folder, precision, type, arithmetic);
    EXPECT_TRUE(runner.status().ok()) << runner.status().message();
    for (const GoldenCase& item : golden.cases) {
      constexpr size_t kLong = 64;
      if (item.prompt.size() > kLong) continue;
      Feed feed = Runner::feed(static_cast<uint32_t>(item.prompt.size()));
      const auto rows = runner.step(feed, item.prompt);
      for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
      from_goldens = std::max(from_goldens, relative_l2(rows.back(), item.logits_last));
    }
  }
};

// What a GPU computes at the default precision, by its model on the CPU: hardly further away than
// what a cache of bfloat16 does to float32, over all rows. The worst of the six golden ones is a
// draw: products in float16 add little, but turn the roundings of the cache another way. It is at
// most 1.5 times the float32 run's, and 1.8 for the random gemma2.
TEST(Goldens, InTheProfileOfAGpuAreAsNearAsItsCacheLetsThem) {
  using enum Runner::Arithmetic;
  for (const Golden& golden : testing::goldens()) {
    if (!golden.has("config.json")) continue;
    const Said exact(golden, Precision::kF32, KvType::kF32, kCpu);
    const Said own(golden, Precision::kDefault, KvType::kBf16, kHopper);
    const Said cache(golden, Precision::kF32, KvType::kBf16, kCpu);
    const double far = relative_l2(own.all, exact.all), bar = relative_l2(cache.all, exact.all);
    std::cout << golden.name << ": relative L2 " << far << ", " << far / bar
              << " of what such a cache does to float32; of the worst golden row "
              << own.from_goldens << ", " << own.from_goldens / cache.from_goldens << "\n";
    EXPECT_LE(far, 1.2 * bar) << golden.name;
    EXPECT_LE(own.from_goldens, (golden.name == "gemma2" ? 2.0 : 1.5) * cache.from_goldens)
        << golden.name;
  }
}

}  // namespace
}  // namespace skein
