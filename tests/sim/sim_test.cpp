// Properties of whole runs.
#include <algorithm>
#include <gtest/gtest.h>

#include "sim/allocation_hooks.h"
#include "sim/simulator.h"

namespace skein::sim {
namespace {

constexpr TokenId kOne = 1;

// A run whose outcome does not depend on time: no cancels, deadlines, floods or restarts.
SimConfig timeless(uint64_t seed, uint32_t requests) {
  SimConfig c = random_config(seed, 1'000'000);
  c.faults = {};
  if (seed % 2 == 0) {
    c.faults.set(Fault::kSegmentFault);
    c.scheduler.step_drafts =
        0;  // a segment that fails takes along what its drafts would have brought
  }
  c.max_requests = requests;
  c.follow_up_percent = 0;
  c.scheduler.max_queue = 1000;
  c.door = false;
  c.keep_transcripts = true;
  return c;
}

TEST(Simulation, SameTraceAndDepthSamePlanLog) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimConfig config = random_config(seed, 1000);
    config.keep_plan_log = true;
    const SimReport a = simulate(config);
    const SimReport b = simulate(config);
    ASSERT_EQ(a.violation, "");
    ASSERT_GT(a.plan_log.size(), 1000u);
    ASSERT_TRUE(a.plan_log == b.plan_log) << "seed " << seed;
  }
}

// The secret of the hash decides buckets, never a decision.
TEST(Simulation, PlansDoNotDependOnTheHashKey) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimConfig config = random_config(seed, 1000);
    config.keep_plan_log = true;
    const SimReport a = simulate(config);
    config.scheduler.hash_key.low ^= 0x123456;
    ASSERT_TRUE(a.plan_log == simulate(config).plan_log) << "seed " << seed;
  }
}

TEST(Simulation, TokensAndEndsAreEqualAtDepthOneAndTwo) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimConfig config = timeless(seed, 200);
    config.scheduler.depth = 1;
    const SimReport one = simulate(config);
    config.scheduler.depth = 2;
    const SimReport two = simulate(config);
    ASSERT_EQ(one.violation, "");
    ASSERT_EQ(two.violation, "");
    ASSERT_EQ(one.transcripts.size(), 200u);
    ASSERT_TRUE(one.transcripts == two.transcripts) << "seed " << seed;
  }
}

TEST(Simulation, DraftsChangeTheStepsAndNotTheTokens) {
  uint64_t fewer = 0;
  for (uint64_t seed = 1; seed <= 59; seed += 2) {
    SimConfig config = timeless(seed, 100);
    config.draft_percent = seed % 4 == 1 ? 95 : 50;
    config.scheduler.step_drafts = 8;
    config.row_us = SimConfig{}.row_us;  // on a slow machine fewer of them pay
    const SimReport with = simulate(config);
    config.scheduler.step_drafts = 0;
    const SimReport without = simulate(config);
    ASSERT_EQ(with.violation, "");
    ASSERT_EQ(without.violation, "");
    ASSERT_TRUE(with.transcripts == without.transcripts) << "seed " << seed;
    fewer += with.steps < without.steps ? 1 : 0;
  }
  EXPECT_GT(fewer, 20u);
}

TEST(Simulation, ARequestsTokensDoNotDependOnTheLoad) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimConfig config = timeless(seed, 150);
    config.target_live = 40;
    const SimReport loaded = simulate(config);
    preemptions += loaded.paths[static_cast<size_t>(Path::k_preemption)];
    SimConfig alone = config;
    alone.target_live = 1;
    alone.scheduler.max_batch = 1;
    alone.scheduler.sure_batch = 0;
    alone.scheduler.prefix_cache = false;
    // What is computed whole is refused where it is longer than a step.
    if (!alone.scheduler.whole) alone.scheduler.step_tokens = 512;
    const SimReport unloaded = simulate(alone);
    ASSERT_EQ(loaded.violation, "");
    ASSERT_EQ(unloaded.violation, "");
    ASSERT_TRUE(loaded.transcripts == unloaded.transcripts) << "seed " << seed;
  }
  EXPECT_GT(preemptions, 300u) << "the load was real";
}

// What a run must never do is checked against it while it goes on; this is the other half: the
// check of the waiting bound is not vacuous, classes do overtake within it.
TEST(Simulation, ClassesOvertakeWithinTheBoundOnly) {
  uint64_t class_preemptions = 0;
  uint64_t worst_overtake_permille = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SimConfig config = random_config(seed, 2000);
    config.faults = {};
    config.scheduler.max_batch = 2;
    config.scheduler.us_per_class = 20'000;
    config.target_live = 30;
    const SimReport report = simulate(config);
    ASSERT_EQ(report.violation, "");
    class_preemptions += report.paths[static_cast<size_t>(Path::k_class_preemption)];
    worst_overtake_permille = std::max(worst_overtake_permille, report.worst_overtake_permille);
  }
  EXPECT_GT(class_preemptions, 0u);
  EXPECT_GT(worst_overtake_permille, 500u);
  EXPECT_LE(worst_overtake_permille, 1000u);
}

// Steps allocate nothing once everything has grown to its size, whatever happens in them, with
// somebody who is told what the prefix cache holds.
TEST(Simulation, StepsAllocateNothing) {
  SchedulerConfig c;
  c.kv_events = true;
  c.pool_blocks = 40;
  c.max_batch = 8;
  c.max_context = 1000;
  c.vocab_size = 100;
  c.step_tokens = 64;
  auto made = ContinuousBatchingScheduler::create(c);
  ASSERT_TRUE(made.ok());
  ContinuousBatchingScheduler& scheduler = **made;
  StepPlan plan;
  StepResult result;
  StepEffects effects;
  Rng rng(1);
  TimeUs now = 0;
  uint64_t next_id = 1;
  uint64_t in_steps = 0, events = 0;
  for (int step = 0; step < 3000; ++step) {
    while (scheduler.stats().waiting[0] + scheduler.stats().waiting[1] +
               scheduler.stats().waiting[2] <
           6) {
      RequestSpec spec;
      spec.id = RequestId{next_id++};
      spec.priority = static_cast<Priority>(rng.below(3));
      spec.prompt.assign(1 + rng.below(200), static_cast<TokenId>(rng.below(3)));
      spec.max_new_tokens = static_cast<uint32_t>(1 + rng.below(100));
      spec.deadline = rng.chance(1, 4) ? now + static_cast<TimeUs>(rng.below(100'000)) : kNever;
      ASSERT_TRUE(scheduler.submit(std::move(spec), now).ok());
    }
    const uint64_t before = allocations();
    scheduler.plan(now, plan);
    const uint64_t planned = allocations() - before;
    result.reset(plan.step);
    for (const Segment& segment : plan.segments)
      result.add(SegmentOutcome::kOk, std::span(&kOne, segment.samples));
    now += 1000;
    const uint64_t middle = allocations();
    if (!plan.empty()) scheduler.commit(result, now, effects);
    if (step >= 500) in_steps += planned + allocations() - middle;
    events += scheduler.kv_events().size();
    scheduler.clear_kv_events();
  }
  const SchedulerStats stats = scheduler.stats();
  EXPECT_GT(stats.preemptions, 50u);
  EXPECT_GT(stats.admission_hits, 100u);
  EXPECT_GT(stats.deadlines, 20u);
  EXPECT_GT(events, 1000u);
  EXPECT_EQ(in_steps, 0u);
}

// Streams keep their pace while long prompts keep arriving.
TEST(Simulation, AnInterTokenTargetHoldsUnderLongPrompts) {
  SchedulerConfig c;
  c.pool_blocks = 4096;
  c.max_context = 8192;
  c.vocab_size = 100;
  c.step_tokens = 2048;
  const auto slowest_step_with_streams = [&](TimeUs target) {
    c.inter_token_target_us = target;
    c.max_slowdown_percent = 0;
    auto scheduler = std::move(ContinuousBatchingScheduler::create(c)).value();
    StepPlan plan;
    StepResult result;
    StepEffects effects;
    TimeUs now = 0;
    TimeUs slowest = 0;
    uint64_t id = 1;
    uint64_t computed = 0;
    const auto submit = [&](uint32_t prompt, uint32_t answer) {
      RequestSpec spec;
      spec.id = RequestId{id++};
      spec.prompt.assign(prompt, static_cast<TokenId>(id % 100));
      spec.max_new_tokens = answer;
      EXPECT_TRUE(scheduler->submit(std::move(spec), now).ok());
    };
    for (int i = 0; i < 8; ++i) submit(20, 600);
    for (int step = 0; step < 500; ++step) {
      if (step % 40 == 20) submit(4000, 2);
      scheduler->plan(now, plan);
      StepLoad load;
      for (const Segment& segment : plan.segments) load.add(segment.start, segment.count);
      result.reset(plan.step);
      result.elapsed_us =
          2'000 + 30 * static_cast<TimeUs>(load.tokens) + static_cast<TimeUs>(load.pairs / 1024);
      for (const Segment& segment : plan.segments)
        result.add(SegmentOutcome::kOk, std::span(&kOne, segment.samples));
      now += result.elapsed_us;
      if (step > 60) slowest = std::max(slowest, result.elapsed_us);
      computed += plan.tokens;
      scheduler->commit(result, now, effects);
    }
    EXPECT_GT(computed, 20'000u) << "the long prompts got through as well";
    return slowest;
  };
  EXPECT_GT(slowest_step_with_streams(0), 50'000);
  EXPECT_LE(slowest_step_with_streams(10'000), 12'500);
}

}  // namespace
}  // namespace skein::sim
