// The full form of the pressure test: 200 requests on 64 blocks in every setting. The last line is
// the figure.
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "engine/pressure.h"
#include "format/test_folder.h"

namespace skein {
namespace {

TEST(Pressure, InFull) {
  const std::string path = testing::default_model_path();
  ASSERT_TRUE(std::filesystem::exists(path)) << "the default model is not there (make model)";
  ComputePool pool(2);
  auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  constexpr uint32_t kRequests = 200;
  const PressureLoad load(**model, kRequests, 160);
  if (HasFailure()) return;
  uint32_t equal = 0, all = 0;
  uint64_t preemptions = 0;
  for (const bool prefix_cache : {true, false}) {
    for (const uint32_t step_tokens : {16, 64, 512}) {
      for (const uint32_t threads : {1, 2}) {
        const PressureSetting setting{prefix_cache, step_tokens, threads, threads == 2};
        const PressureReport report = load.run(path, setting);
        equal += report.requests - report.different;
        all += kRequests;
        EXPECT_EQ(report.different, 0U) << report.first_difference;
        preemptions += report.preemptions;
        fmt::print("{}: {} of {} equal, {} preemptions ({} by class)\n", setting.name(),
                   report.requests - report.different, kRequests, report.preemptions,
                   report.class_preemptions);
      }
    }
  }
  fmt::print("pressure: {} of {} answers equal to the unloaded run\n", equal, all);
  EXPECT_EQ(equal, all);
  EXPECT_GE(preemptions, 20U);
}

}  // namespace
}  // namespace skein
