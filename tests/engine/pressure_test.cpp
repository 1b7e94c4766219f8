#include "engine/pressure.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "format/test_folder.h"

namespace skein {
namespace {

TEST(Pressure, FortyRequestsAnswerAsTheyDoAlone) {
  const std::string path = testing::default_model_path();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the default model is not there (make model)";
  ComputePool pool(2);
  auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const PressureLoad load(**model, 40, 80);
  if (HasFailure()) return;
  // Small pools, so that forty requests press as two hundred do on 64 blocks.
  for (const PressureSetting& setting :
       {PressureSetting{
            .prefix_cache = true, .step_tokens = 64, .mixed_classes = true, .pool_blocks = 16},
        PressureSetting{
            .prefix_cache = false, .step_tokens = 16, .threads = 1, .pool_blocks = 16}}) {
    const PressureReport report = load.run(path, setting);
    EXPECT_EQ(report.requests, 40U) << setting.name();
    EXPECT_EQ(report.different, 0U) << setting.name() << ": " << report.first_difference;
    EXPECT_GE(report.preemptions, 20U) << setting.name();
    EXPECT_EQ(report.class_preemptions > 0, setting.mixed_classes) << setting.name();
    EXPECT_EQ(report.prefix_hit_tokens > 0, setting.prefix_cache) << setting.name();
  }
}

}  // namespace
}  // namespace skein
