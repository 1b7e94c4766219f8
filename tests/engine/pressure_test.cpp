#include "engine/pressure.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "engine/golden_model.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein {
namespace {

void expect_equal(const PressureReport& report, const PressureSetting& setting, uint32_t requests) {
  EXPECT_EQ(report.requests, requests) << setting.name();
  EXPECT_EQ(report.different, 0U) << setting.name() << ": " << report.first_difference;
  EXPECT_EQ(report.prefix_hit_tokens > 0, setting.prefix_cache) << setting.name();
  if (setting.mixed_classes) {
    EXPECT_GT(report.class_preemptions, 0U) << setting.name();
  }
}

TEST(Pressure, TwoHundredRequestsOfATinyModelAnswerAsTheyDoAlone) {
  ComputePool pool(2);
  auto model = LoadedModel::load(golden_model_path(), {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const PressureLoad load(**model, 200, 120);
  if (HasFailure()) return;
  uint64_t preemptions = 0;
  for (const bool prefix_cache : {true, false}) {
    for (const uint32_t step_tokens : {16, 64, 512}) {
      const PressureSetting setting{prefix_cache, step_tokens, 2, step_tokens == 64, 16};
      const PressureReport report = load.run(golden_model_path(), setting);
      expect_equal(report, setting, 200);
      preemptions += report.preemptions;
    }
  }
  EXPECT_GE(preemptions, 100U);
}

TEST(Pressure, RequestsWithFormsAnswerAsTheyDoAlone) {
  const testing::TestFolder folder;
  const std::string path = testing::write_tiny_model(folder);
  ComputePool pool(2);
  auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const PressureLoad load(**model, 200, 120, UINT32_MAX, true);
  if (HasFailure()) return;
  uint64_t preemptions = 0;
  for (const uint64_t cache_bytes : {0, 1024}) {
    for (const uint32_t threads : {1, 2}) {
      PressureSetting setting{threads == 1, 64, threads, threads == 2, 9};
      setting.form_cache_bytes = cache_bytes;
      if (threads == 2) setting.form_work = 0;
      const PressureReport report = load.run(path, setting);
      expect_equal(report, setting, 200);
      preemptions += report.preemptions;
      EXPECT_GE(report.put_off, threads == 2 ? 200U : 0U);
    }
  }
  EXPECT_GE(preemptions, 50U);
}

TEST(Pressure, WithKeysAndValuesOfEightBitsToo) {
  ComputePool pool(2);
  ModelOptions options;
  options.kv_type = KvType::kInt8;
  auto model = LoadedModel::load(golden_model_path(), options, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ((*model)->kv_type(), KvType::kInt8);
  const PressureLoad load(**model, 80, 120);
  if (HasFailure()) return;
  const PressureSetting setting{true, 64, 2, true, 16};
  const PressureReport report = load.run(golden_model_path(), setting);
  expect_equal(report, setting, 80);
  EXPECT_GE(report.preemptions, 10U);
}

TEST(Pressure, FortyRequestsAnswerAsTheyDoAlone) {
  const std::string path = testing::default_model_path();
  SKEIN_NEEDS_DEFAULT_MODEL();
  ComputePool pool(2);
  auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const PressureLoad load(**model, 40, 24);
  if (HasFailure()) return;
  // Small pools, so that forty requests press as two hundred do on 64 blocks.
  uint64_t preemptions = 0;
  for (const PressureSetting& setting :
       {PressureSetting{true, 64, 2, true, 6}, PressureSetting{false, 16, 1, false, 6}}) {
    const PressureReport report = load.run(path, setting);
    expect_equal(report, setting, 40);
    preemptions += report.preemptions;
  }
  EXPECT_GE(preemptions, 3U);
}

}  // namespace
}  // namespace skein
