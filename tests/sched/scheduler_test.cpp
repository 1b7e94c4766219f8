#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include "sched/harness.h"

namespace skein {
namespace {

TEST(Scheduler, OneRequestFromPromptToLength) {
  Harness h;
  h.must_submit(1, text(40), 3);
  EXPECT_EQ(h.explain(1).status, RequestStatus::WAITING);
  h.step();
  ASSERT_EQ(h.plan.segments.size(), 1u);
  EXPECT_EQ(h.plan.admitted, std::vector{RequestId{1}});
  EXPECT_EQ(h.plan.segments[0].start, 0u);
  EXPECT_EQ(h.plan.segments[0].count, 40u);
  EXPECT_TRUE(h.plan.segments[0].samples);
  EXPECT_EQ(h.plan.segments[0].blocks.size(), 2u);
  EXPECT_EQ(h.explain(1).status, RequestStatus::RUNNING);
  h.step();
  EXPECT_EQ(h.plan.segments[0].start, 40u);
  EXPECT_EQ(h.plan.segments[0].count, 1u);
  EXPECT_EQ(h.plan.segments[0].tokens[0], kAnswer);
  h.step();
  EXPECT_EQ(h.answers[1], std::vector<TokenId>(3, kAnswer));
  EXPECT_EQ(h.ends.at(1), FinishReason::kLength);
  EXPECT_TRUE(h.scheduler->idle());
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
}

TEST(Scheduler, LongPromptsAreCutAtBlockBordersAndDecodesComeFirst) {
  SchedulerConfig c = Harness::small();
  c.step_tokens = 100;
  Harness h(c);
  h.must_submit(1, text(10, 1), 20);
  h.step();
  h.must_submit(2, text(300, 2), 2);
  h.step();
  ASSERT_EQ(h.plan.segments.size(), 2u);
  EXPECT_EQ(h.segment_of(1)->count, 1u);
  EXPECT_EQ(h.segment_of(2)->count, 96u) << "99 tokens are left; 96 end at a border";
  EXPECT_FALSE(h.segment_of(2)->samples);
  h.step();
  EXPECT_EQ(h.segment_of(2)->start, 96u);
  h.step();
  h.step();
  EXPECT_EQ(h.segment_of(2)->start + h.segment_of(2)->count, 300u);
  EXPECT_TRUE(h.segment_of(2)->samples);
  EXPECT_EQ(h.answers[1].size(), 5u) << "the stream went on all the while";
}

TEST(Scheduler, EndsWithoutMaxTokensAtTheEndOfThePool) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 2;
  Harness h(c);
  RequestSpec spec;
  spec.id = RequestId{1};
  spec.prompt = text(40);
  ASSERT_TRUE(h.scheduler->submit(std::move(spec), 0).ok());
  h.run_out();
  EXPECT_EQ(h.ends.at(1), FinishReason::kLength);
  EXPECT_EQ(h.answers[1].size(), 24u);
}

TEST(Scheduler, RefusesBadInputWithBothNumbersAndLeaksNothing) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 4;
  c.max_context = 1000;
  c.vocab_size = 500;
  c.max_queue = 2;
  Harness h(c);
  const auto refused = [&](Status status, Code code, std::string_view message) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
    EXPECT_TRUE(h.scheduler->idle());
    EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
  };
  refused(h.submit(1, {}), Code::kInvalidArgument, "0 tokens");
  refused(h.submit(1, {1, 500}), Code::kInvalidArgument,
          "prompt token 1 has id 500; the vocabulary has 500");
  refused(h.submit(1, {-1}), Code::kInvalidArgument, "id -1");
  refused(h.submit(1, {1}, 0), Code::kInvalidArgument, "max_tokens is 0");
  refused(h.submit(1, std::vector<TokenId>(100), 29), Code::kOutOfRange,
          "is 129; the KV pool holds 128");
  refused(h.submit(1, std::vector<TokenId>(999), 2), Code::kOutOfRange,
          "is 1001; the context holds 1000");
  refused(h.submit(1, {1}, 4, static_cast<Priority>(9)), Code::kInvalidArgument, "priority 9");

  h.must_submit(1, {1});
  EXPECT_EQ(h.submit(1, {1}).code(), Code::kAlreadyExists);
  h.must_submit(2, {1});
  const Status full = h.submit(3, {1});
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_EQ(full.message(), "2 requests wait; the queue holds 2");
  h.run_out();
  EXPECT_EQ(h.ends.size(), 2u);
  EXPECT_EQ(h.scheduler->stats().refused, 9u);
  EXPECT_TRUE(h.submit(1, {1}).ok()) << "an id is free again after its request ended";
}

TEST(Scheduler, RefusesImpossibleConfigurations) {
  const auto code_with = [](auto change) {
    SchedulerConfig c = Harness::small();
    change(c);
    const auto made = ContinuousBatchingScheduler::create(c);
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(code_with([](auto&) {}), "");
  EXPECT_EQ(code_with([](auto& c) { c.step_tokens = 0; }),
            "step_tokens is 0; it must be 1 to 1048576");
  EXPECT_NE(code_with([](auto& c) { c.pool_blocks = 0; }), "");
  EXPECT_NE(code_with([](auto& c) { c.max_batch = 0; }), "");
  EXPECT_NE(code_with([](auto& c) { c.max_queue = 0; }), "");
  EXPECT_NE(code_with([](auto& c) { c.max_context = 1; }), "");
  EXPECT_NE(code_with([](auto& c) { c.vocab_size = 0; }), "");
  EXPECT_NE(code_with([](auto& c) { c.depth = 3; }), "");
  EXPECT_NE(code_with([](auto& c) { c.us_per_class = 0; }), "");
  EXPECT_NE(code_with([](auto& c) { c.inter_token_target_us = -1; }), "");
}

TEST(Scheduler, CancelWorksInEveryState) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 1;
  c.step_tokens = 32;
  Harness h(c);
  h.must_submit(1, text(100, 1), 4);
  h.must_submit(2, text(10, 2), 4);
  h.step();
  EXPECT_EQ(h.explain(1).status, RequestStatus::PREFILLING);
  EXPECT_EQ(h.explain(2).status, RequestStatus::WAITING);
  EXPECT_TRUE(h.scheduler->cancel(RequestId{2}, FinishReason::kClient));
  EXPECT_FALSE(h.scheduler->cancel(RequestId{2}, FinishReason::kClient)) << "once";
  EXPECT_TRUE(h.scheduler->cancel(RequestId{1}, FinishReason::kClient));
  EXPECT_TRUE(h.scheduler->idle());
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
  h.step();
  EXPECT_TRUE(h.plan.empty());
  h.must_submit(3, text(10, 3), 4);
  h.step();
  EXPECT_EQ(h.explain(3).status, RequestStatus::RUNNING);
  EXPECT_TRUE(h.scheduler->cancel(RequestId{3}, FinishReason::kStop));
  EXPECT_EQ(h.scheduler->stats().completed, 1u) << "a stop string found by the server is a stop";
  EXPECT_FALSE(h.scheduler->cancel(RequestId{99}, FinishReason::kClient));
}

TEST(Scheduler, CancelInFlightReturnsBlocksAtCommitAndNoToken) {
  Harness h;
  h.must_submit(1, text(40), 4);
  StepPlan plan;
  h.scheduler->plan(h.now, plan);
  ASSERT_EQ(plan.segments.size(), 1u);
  EXPECT_TRUE(h.scheduler->cancel(RequestId{1}, FinishReason::kClient));
  EXPECT_EQ(h.scheduler->stats().held_blocks, 2u);
  EXPECT_FALSE(h.scheduler->idle());
  h.finish(plan, 10);
  EXPECT_TRUE(h.answers.empty());
  EXPECT_TRUE(h.ends.empty());
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
  EXPECT_EQ(h.scheduler->stats().wasted_tokens, 1u);
  EXPECT_TRUE(h.scheduler->idle());
}

TEST(Scheduler, AFaultEndsItsRowAlone) {
  Harness h;
  for (uint64_t id : {1, 2, 3}) h.must_submit(id, text(10, static_cast<TokenId>(id)), 2);
  h.scheduler->plan(h.now, h.plan);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kOk, std::vector{kAnswer});
  result.add(SegmentOutcome::kFault);
  result.add(SegmentOutcome::kOk, std::vector{1'000'000});
  h.commit(result);
  EXPECT_EQ(h.ends.at(2), FinishReason::kError);
  EXPECT_EQ(h.ends.at(3), FinishReason::kError) << "a token outside the vocabulary";
  EXPECT_EQ(h.answers[1].size(), 1u);
  h.run_out();
  EXPECT_EQ(h.ends.at(1), FinishReason::kLength);
}

TEST(Scheduler, DeadlinesEndQueuedAndRunningRequests) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 1;
  Harness h(c);
  for (uint64_t id : {1, 2}) {
    RequestSpec spec;
    spec.id = RequestId{id};
    spec.prompt = text(10, static_cast<TokenId>(id));
    spec.deadline = 2'500;
    ASSERT_TRUE(h.scheduler->submit(std::move(spec), 0).ok());
  }
  while (!h.scheduler->idle()) h.step();
  EXPECT_EQ(h.ends.at(1), FinishReason::kTimedOut);
  EXPECT_EQ(h.ends.at(2), FinishReason::kTimedOut);
  EXPECT_EQ(h.answers[1].size(), 3u);
  EXPECT_FALSE(h.answers.contains(2)) << "nothing computed";
  EXPECT_EQ(h.scheduler->stats().deadlines, 2u);
}

TEST(Scheduler, OutOfBlocksTheWorstKeyGivesWayAndLosesNothing) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 4;
  Harness h(c);
  h.must_submit(1, text(30, 1), 60);  // needs 3 blocks in the end
  h.must_submit(2, text(30, 2), 60);
  uint32_t most = 0;
  while (!h.scheduler->idle()) {
    h.step();
    if (!h.ends.contains(2)) most = std::max(most, h.explain(2).preemptions);
    if (!h.ends.contains(1)) {
      ASSERT_EQ(h.explain(1).preemptions, 0u) << "the first to come runs through";
    }
  }
  EXPECT_GE(most, 1u);
  EXPECT_EQ(h.answers[1].size(), 60u);
  EXPECT_EQ(h.answers[2].size(), 60u);
  EXPECT_GT(h.scheduler->stats().prefix_hit_tokens, 0u) << "it resumed from its cached blocks";
}

TEST(Scheduler, TheHeadOfTheQueueIsNotBypassed) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 8;
  Harness h(c);
  h.must_submit(1, text(150, 1), 50);  // 5 blocks
  h.step();
  h.must_submit(2, text(120, 2), 4);  // 4 blocks: does not fit now
  h.must_submit(3, text(10, 3), 4);   // would fit
  h.step();
  EXPECT_EQ(h.segment_of(3), nullptr);
  const Explanation head = h.explain(2);
  EXPECT_EQ(head.wait, WaitReason::kNoBlocks);
  EXPECT_EQ(head.queue_position, 1u);
  EXPECT_EQ(head.blocks_needed, 5u) << "its 4 and one for request 1 to grow";
  EXPECT_EQ(head.blocks_available, 3u);
  EXPECT_EQ(head.describe(), "waits: needs 5 KV blocks, 3 are available");
  EXPECT_EQ(h.explain(3).wait, WaitReason::kBehindOthers);
  EXPECT_EQ(h.explain(3).describe(), "waits: number 2 in the queue");
  h.run_out();
  EXPECT_EQ(h.ends.size(), 3u);
}

TEST(Scheduler, ABetterClassTakesThePlaceOfAWorseOne) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 2;
  Harness h(c);
  h.must_submit(1, text(10, 1), 50, Priority::LOW);
  h.must_submit(2, text(10, 2), 50, Priority::LOW);
  h.step();
  h.must_submit(3, text(10, 3), 2, Priority::NORMAL);
  h.step();
  EXPECT_EQ(h.plan.preempted, std::vector{RequestId{2}}) << "the worst key";
  EXPECT_EQ(h.plan.admitted, std::vector{RequestId{3}});
  EXPECT_NE(h.segment_of(3), nullptr);
  EXPECT_EQ(h.scheduler->stats().class_preemptions, 1u);
  h.must_submit(4, text(10, 4), 2, Priority::NORMAL);
  h.step();
  EXPECT_EQ(h.plan.preempted, std::vector{RequestId{1}}) << "never one of its own class";
  h.run_out();
  for (uint64_t id : {1, 2}) EXPECT_EQ(h.answers[id].size(), 50u);
}

TEST(Scheduler, AnAgedLowRequestIsNotPushedOut) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 1;
  Harness h(c);
  h.must_submit(1, text(10, 1), 50, Priority::LOW);
  h.step();
  h.now += 21 * kUsPerSecond;
  h.must_submit(2, text(10, 2), 2, Priority::HIGH);
  h.step();
  EXPECT_TRUE(h.plan.preempted.empty());
  EXPECT_EQ(h.explain(2).wait, WaitReason::kBatchFull);
}

TEST(Scheduler, NobodyIsPreemptedWhenThatWouldNotMakeRoom) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 8;
  Harness h(c);
  h.must_submit(1, text(180, 1), 40, Priority::HIGH);  // 6 blocks and growing
  h.must_submit(2, text(20, 2), 10, Priority::LOW);
  h.step();
  h.must_submit(3, text(150, 3), 10, Priority::HIGH);  // 5 blocks: not to be had
  h.step();
  EXPECT_TRUE(h.plan.preempted.empty());
  EXPECT_NE(h.segment_of(2), nullptr) << "the LOW one runs on";
}

TEST(Scheduler, AShortHighPromptDoesNotWaitForALongLowOne) {
  Harness h;
  h.must_submit(1, text(1500, 1), 4, Priority::LOW);
  h.step();
  EXPECT_EQ(h.segment_of(1)->count, 256u);
  h.must_submit(2, text(100, 2), 4, Priority::HIGH);
  h.step();
  ASSERT_NE(h.segment_of(2), nullptr);
  EXPECT_EQ(h.segment_of(2)->count, 100u);
  EXPECT_TRUE(h.segment_of(2)->samples) << "its first token comes with this very step";
  EXPECT_EQ(h.segment_of(1)->count, 128u) << "the rest, up to a border";
  EXPECT_EQ(h.plan.segments[0].request, RequestId{1}) << "segments stand in order of admission";
}

TEST(Scheduler, DrainFinishesWhatIsThere) {
  Harness h;
  h.must_submit(1, text(10), 4);
  h.scheduler->drain();
  EXPECT_EQ(h.submit(2, text(10)).code(), Code::kUnavailable);
  h.run_out();
  EXPECT_EQ(h.ends.at(1), FinishReason::kLength);
}

TEST(Scheduler, CancelAllEndsEveryoneOnce) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 2;
  Harness h(c);
  for (uint64_t id : {1, 2, 3, 4}) h.must_submit(id, text(10, static_cast<TokenId>(id)));
  h.step();
  std::vector<EndEvent> ended;
  h.scheduler->cancel_all(FinishReason::kDrained, ended);
  ASSERT_EQ(ended.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(ended[i].request, RequestId{i + 1});
  EXPECT_TRUE(h.scheduler->idle());
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
}

TEST(Scheduler, AClockThatStepsBackReordersNobody) {
  Harness h;
  h.now = 3600 * kUsPerSecond;
  h.must_submit(1, text(10, 1));
  h.now = 0;
  h.must_submit(2, text(10, 2));
  EXPECT_EQ(h.explain(1).queue_position, 1u);
  EXPECT_EQ(h.explain(2).queue_position, 2u);
  h.run_out();
  EXPECT_EQ(h.ends.size(), 2u);
}

TEST(Scheduler, AtDepthTwoTheNextStepIsPlannedWhileOneRuns) {
  SchedulerConfig c = Harness::small();
  c.depth = 2;
  Harness h(c);
  h.must_submit(1, text(10), 3);
  StepPlan first, second, third;
  h.scheduler->plan(0, first);
  h.scheduler->plan(0, second);
  ASSERT_EQ(second.segments.size(), 1u);
  EXPECT_EQ(second.segments[0].start, 10u);
  EXPECT_TRUE(second.segments[0].token_from_previous);
  EXPECT_TRUE(second.segments[0].tokens.empty());
  h.finish(first, 10);
  h.scheduler->plan(h.now, third);
  EXPECT_EQ(third.segments[0].start, 11u);
  // The sample of `second` is a stop: `third` was in vain.
  StepResult stop;
  stop.reset(second.step);
  stop.add(SegmentOutcome::kStop);
  h.commit(stop);
  EXPECT_EQ(h.ends.at(1), FinishReason::kStop);
  EXPECT_GT(h.scheduler->stats().held_blocks, 0u) << "`third` is still being computed";
  h.finish(third, 10);
  EXPECT_EQ(h.answers[1].size(), 1u);
  EXPECT_EQ(h.scheduler->stats().wasted_tokens, 1u);
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
}

TEST(Scheduler, ExplainKnowsOnlyTheLiving) {
  Harness h;
  EXPECT_EQ(h.scheduler->explain(RequestId{5}, 0).status().code(), Code::kNotFound);
  h.must_submit(5, text(40), 2, Priority::LOW);
  h.now = 5 * kUsPerSecond;
  const Explanation e = h.explain(5);
  EXPECT_EQ(e.effective_priority_milli, 1500);
  EXPECT_EQ(e.waited_us, 5 * kUsPerSecond);
  EXPECT_EQ(e.prompt_tokens, 40u);
  h.step();
  EXPECT_EQ(h.explain(5).blocks, 2u);
  EXPECT_EQ(h.explain(5).describe(), "running: nothing holds it up");
}

TEST(SchedulerDeathTest, ResultsThatFitNoPlanAreABrokenInvariant) {
  Harness h;
  StepResult result;
  EXPECT_DEATH(h.scheduler->commit(result, 0, h.effects), "no plan in flight");
  h.must_submit(1, text(10));
  h.scheduler->plan(0, h.plan);
  result.step = h.plan.step;
  EXPECT_DEATH(h.scheduler->commit(result, 0, h.effects), "has 1 segments, its result 0");
  StepPlan second;
  EXPECT_DEATH(h.scheduler->plan(0, second), "1 plans in flight at depth 1");
}

}  // namespace
}  // namespace skein
