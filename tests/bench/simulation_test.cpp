#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/schedule_sim.h"

namespace skein::bench {
namespace {

using ::testing::HasSubstr;

SimLoad small_load() {
  SimLoad load;
  load.scheduler.pool_blocks = 64;
  load.scheduler.max_batch = 4;
  load.scheduler.max_context = 4096;
  load.scheduler.vocab_size = 1000;
  load.step_us = 1000;
  load.token_us = 100;
  return load;
}

WorkItem item(TimeUs arrival_us, uint32_t prompt, uint32_t answer,
              Priority priority = Priority::NORMAL) {
  WorkItem out;
  out.prompt_tokens = prompt;
  out.max_tokens = answer;
  out.arrival_us = arrival_us;
  out.priority = priority;
  return out;
}

// One step of 10 tokens, then two of one each: 2 ms, 1.1 ms, 1.1 ms.
TEST(ScheduleSim, TimeIsTheSumOfItsSteps) {
  const std::vector<WorkItem> items = {item(500, 10, 3)};
  const auto out = simulate_schedule(items, small_load());
  ASSERT_TRUE(out.ok()) << out.message();
  ASSERT_EQ(out->classes.size(), 1U);
  EXPECT_EQ(out->steps, 3U);
  EXPECT_EQ(out->generated_tokens, 3U);
  EXPECT_DOUBLE_EQ(out->classes[0].queue_ms.max, 0);
  EXPECT_DOUBLE_EQ(out->classes[0].first_token_ms.p50, 2);
  EXPECT_DOUBLE_EQ(out->classes[0].latency_ms.p50, 4.2);
  EXPECT_DOUBLE_EQ(out->seconds, 0.0047);
}

TEST(ScheduleSim, ABetterClassWaitsLessUnderLoad) {
  const auto items = synthetic_items({.requests = 400, .rate = 40, .seed = 5});
  SimLoad load = small_load();
  load.scheduler.pool_blocks = 1024;
  load.scheduler.max_batch = 8;
  const auto out = simulate_schedule(items, load);
  ASSERT_TRUE(out.ok()) << out.message();
  ASSERT_EQ(out->classes.size(), 3U);
  EXPECT_EQ(out->classes[0].priority, Priority::HIGH);
  EXPECT_LT(out->classes[0].queue_ms.p50, out->classes[1].queue_ms.p50);
  EXPECT_LT(out->classes[1].queue_ms.p50, out->classes[2].queue_ms.p50);
  EXPECT_GT(out->mean_batch, 6);
  const auto again = simulate_schedule(items, load);
  EXPECT_EQ(again->steps, out->steps);
  EXPECT_DOUBLE_EQ(again->classes[2].latency_ms.p99, out->classes[2].latency_ms.p99);
}

TEST(ScheduleSim, AFullQueueRefusesAndAnEndlessRequestIsAnError) {
  SimLoad load = small_load();
  load.scheduler.max_queue = 2;
  const std::vector<WorkItem> burst(20, item(0, 10, 10));
  const auto out = simulate_schedule(burst, load);
  ASSERT_TRUE(out.ok()) << out.message();
  EXPECT_EQ(out->classes[0].requests + out->classes[0].refused, 20U);
  EXPECT_GT(out->classes[0].refused, 0U);
  const std::vector<WorkItem> giant = {item(0, 10, 10), item(0, 5000, 10)};
  const auto refused = simulate_schedule(giant, load);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("request 2"));
}

}  // namespace
}  // namespace skein::bench
