// What a request's segments of one step may come to: no token, one, or several.
#include <gtest/gtest.h>
#include <vector>

#include "sched/harness.h"

namespace skein {
namespace {

SchedulerConfig with_drafts(uint32_t drafts, uint32_t depth = 1) {
  SchedulerConfig c = Harness::small();
  c.step_drafts = drafts;
  c.depth = depth;
  return c;
}

// Runs the prompt of the only request; the result guesses `drafts`.
void first_token(Harness& h, const std::vector<TokenId>& drafts) {
  h.scheduler->plan(h.now, h.plan);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kOk, std::vector{kAnswer}, drafts);
  h.commit(result);
  h.scheduler->plan(h.now, h.plan);
}

TEST(Segments, DraftsThatComeTrueAreTokensAndTheRestIsComputedAgain) {
  Harness h(with_drafts(4));
  h.must_submit(1, text(10), 20);
  first_token(h, {8, 9, 10});
  ASSERT_EQ(h.plan.segments.size(), 1u);
  EXPECT_EQ(h.plan.segments[0].start, 10u);
  EXPECT_EQ(h.plan.segments[0].count, 4u);
  EXPECT_EQ(h.plan.segments[0].samples, 4u);
  EXPECT_EQ(h.plan.segments[0].tokens.size(), 1u);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kOk, std::vector{8, 9, 11});
  h.commit(result);
  EXPECT_EQ(h.answers[1], (std::vector{kAnswer, 8, 9, 11}));
  EXPECT_EQ(h.explain(1).computed_tokens, 13u);
  h.step();
  EXPECT_EQ(h.plan.segments[0].start, 13u);
  EXPECT_EQ(h.plan.segments[0].count, 1u) << "the drafts have been used";
  h.run_out();
  EXPECT_EQ(h.answers[1].size(), 20u);
}

TEST(Segments, DraftsAreCutAtTheLimitTheBlockTheStepAndTheVocabulary) {
  const std::vector<TokenId> many(100, 5);
  const auto drafts = [&](uint32_t prompt, uint32_t max_new, uint32_t step_drafts,
                          const std::vector<TokenId>& offered, uint32_t blocks = 64) {
    SchedulerConfig c = with_drafts(step_drafts);
    c.pool_blocks = blocks;
    Harness h(c);
    h.must_submit(1, text(prompt), max_new);
    first_token(h, offered);
    return h.plan.segments[0].drafts.size();
  };
  EXPECT_EQ(drafts(10, 5, 50, many), 3u) << "a token more is sampled than drafts are right";
  EXPECT_EQ(drafts(28, 50, 50, many, 3), 3u) << "to the end of the block where they are few";
  EXPECT_EQ(drafts(28, 50, 50, many), 48u) << "and on in the next ones where there are plenty";
  EXPECT_EQ(drafts(10, 50, 6, many), 6u);
  EXPECT_EQ(drafts(10, 50, 6, {1, 2, -1, 3}), 2u);
  EXPECT_EQ(drafts(10, 50, 6, {1, 1'000'000}), 1u);
  EXPECT_EQ(drafts(10, 50, 0, many), 0u);
}

// Commits the plan with one token for each segment, and these guesses and odds for the first one.
void answer_all(Harness& h, const std::vector<TokenId>& drafts, const std::vector<uint16_t>& odds,
                TimeUs elapsed_us) {
  StepResult result;
  result.reset(h.plan.step);
  result.elapsed_us = elapsed_us;
  for (size_t i = 0; i < h.plan.segments.size(); ++i) {
    const bool samples = h.plan.segments[i].samples > 0;
    result.add(SegmentOutcome::kOk, samples ? std::vector{kAnswer} : std::vector<TokenId>{},
               i == 0 ? drafts : std::vector<TokenId>{}, i == 0 ? odds : std::vector<uint16_t>{});
  }
  h.commit(result);
  h.scheduler->plan(h.now, h.plan);
}

TEST(Segments, DraftsAreNotComputedBesideAPrompt) {
  Harness h(with_drafts(4));
  h.must_submit(1, text(10), 20);
  h.scheduler->plan(h.now, h.plan);
  h.must_submit(2, text(40, 2), 20);
  answer_all(h, {8, 9}, {}, 1000);
  ASSERT_EQ(h.plan.segments.size(), 2u);
  EXPECT_TRUE(h.plan.segments[0].drafts.empty());
  answer_all(h, {8, 9}, {}, 1000);
  EXPECT_EQ(h.plan.segments[0].drafts.size(), 2u);
}

// A step costs 10 ms and 1 ms for each token more.
TEST(Segments, DraftsAreComputedAsLongAsTheyPay) {
  const auto drafts = [](const std::vector<uint16_t>& odds, uint32_t streams, TimeUs target_us) {
    SchedulerConfig c = with_drafts(8);
    c.inter_token_target_us = target_us;
    Harness h(c);
    for (uint32_t i = 1; i <= streams; ++i) h.must_submit(i, text(10, static_cast<int>(i)), 200);
    h.scheduler->plan(h.now, h.plan);
    for (int i = 0; i < 60; ++i) {
      answer_all(h, {}, {}, 10'000 + 1000 * static_cast<TimeUs>(h.plan.tokens));
      // Some steps with more tokens, or nothing would tell what one of them costs.
      if (i % 3 == 0) {
        answer_all(h, {1, 2, 3, 4}, {}, 10'000 + 1000 * static_cast<TimeUs>(h.plan.tokens));
      }
    }
    answer_all(h, std::vector<TokenId>(odds.size(), 5), odds,
               10'000 + 1000 * static_cast<TimeUs>(h.plan.tokens));
    return h.plan.segments[0].drafts.size();
  };
  EXPECT_EQ(drafts({900, 800, 700, 600}, 1, 0), 4u);
  EXPECT_EQ(drafts({900, 400, 30, 20}, 1, 0), 2u);
  EXPECT_EQ(drafts({50, 40}, 1, 0), 0u) << "off by itself";
  EXPECT_EQ(drafts({300}, 1, 0), 1u);
  EXPECT_EQ(drafts({300}, 12, 0), 0u) << "with many streams a token is cheap";
  EXPECT_EQ(drafts({990, 980}, 1, 5'000), 0u) << "never beyond the target between tokens";
}

TEST(Segments, TheLikeliestDraftsComeFirst) {
  Harness h(with_drafts(3));
  h.must_submit(1, text(10, 1), 50);
  h.must_submit(2, text(10, 2), 50);
  h.scheduler->plan(h.now, h.plan);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kOk, std::vector{kAnswer}, std::vector{1, 2, 3},
             std::vector<uint16_t>{600, 500, 400});
  result.add(SegmentOutcome::kOk, std::vector{kAnswer}, std::vector{4, 5, 6},
             std::vector<uint16_t>{900, 550, 100});
  h.commit(result);
  h.scheduler->plan(h.now, h.plan);
  ASSERT_EQ(h.plan.segments.size(), 2u);
  EXPECT_EQ(h.plan.segments[0].drafts.size(), 1u);
  EXPECT_EQ(h.plan.segments[1].drafts.size(), 2u);
  const SchedulerStats stats = h.scheduler->stats();
  EXPECT_EQ(stats.drafts, 2u);
  EXPECT_EQ(stats.drafted_tokens, 3u);
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kOk, std::vector{1, kAnswer});
  result.add(SegmentOutcome::kOk, std::vector{kAnswer});
  h.commit(result);
  EXPECT_EQ(h.scheduler->stats().accepted_tokens, 1u);
  EXPECT_EQ(h.explain(1).drafted_tokens, 1u);
  EXPECT_EQ(h.explain(1).accepted_tokens, 1u);
  EXPECT_EQ(h.explain(2).drafted_tokens, 2u);
  EXPECT_EQ(h.explain(2).accepted_tokens, 0u);
}

TEST(Segments, ResultsThatCannotBeEndTheirRequestAlone) {
  using Tokens = std::vector<TokenId>;
  const auto end_of = [](SegmentOutcome outcome, const Tokens& tokens) {
    Harness h(with_drafts(4));
    h.must_submit(1, text(10), 20);
    first_token(h, {8, 9});
    StepResult result;
    result.reset(h.plan.step);
    result.add(outcome, tokens);
    h.commit(result);
    return h.ends.contains(1) ? h.ends[1] : FinishReason::kClient;
  };
  EXPECT_EQ(end_of(SegmentOutcome::kOk, {8, 9, 3}), FinishReason::kClient) << "goes on";
  EXPECT_EQ(end_of(SegmentOutcome::kOk, {3}), FinishReason::kClient) << "goes on";
  EXPECT_EQ(end_of(SegmentOutcome::kStop, {8, 9}), FinishReason::kStop);
  EXPECT_EQ(end_of(SegmentOutcome::kLast, {8, 3}), FinishReason::kStop);
  EXPECT_EQ(end_of(SegmentOutcome::kOk, {}), FinishReason::kError);
  EXPECT_EQ(end_of(SegmentOutcome::kLast, {}), FinishReason::kError);
  EXPECT_EQ(end_of(SegmentOutcome::kOk, {8, 9, 3, 4}), FinishReason::kError) << "more than samples";
  EXPECT_EQ(end_of(SegmentOutcome::kStop, {8, 9, 3}), FinishReason::kError);
  EXPECT_EQ(end_of(SegmentOutcome::kOk, {9, 8}), FinishReason::kError)
      << "8 was not computed there";
}

TEST(Segments, AStopTokenIsNotDeliveredAndALastTokenIs) {
  Harness h;
  h.must_submit(1, text(10, 1), 5);
  h.must_submit(2, text(10, 2), 5);
  h.scheduler->plan(h.now, h.plan);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kStop);
  result.add(SegmentOutcome::kLast, std::vector{kAnswer});
  h.commit(result);
  EXPECT_EQ(h.ends.at(1), FinishReason::kStop);
  EXPECT_EQ(h.ends.at(2), FinishReason::kStop);
  EXPECT_FALSE(h.answers.contains(1));
  EXPECT_EQ(h.answers.at(2), std::vector{kAnswer});
}

TEST(Segments, ARequestThatEndsWhenComputedSamplesNothing) {
  SchedulerConfig c = Harness::small();
  c.step_tokens = 32;
  Harness h(c);
  RequestSpec spec;
  spec.id = RequestId{1};
  spec.prompt = text(40);
  spec.max_new_tokens = 0;
  EXPECT_EQ(h.scheduler->submit(spec, 0).code(), Code::kInvalidArgument);
  spec.ends_when_computed = true;
  ASSERT_TRUE(h.scheduler->submit(spec, 0).ok());
  h.step();
  EXPECT_FALSE(h.plan.segments[0].ends);
  h.step();
  EXPECT_TRUE(h.plan.segments[0].ends);
  EXPECT_EQ(h.plan.segments[0].samples, 0u);
  EXPECT_EQ(h.ends.at(1), FinishReason::kStop);
  EXPECT_TRUE(h.answers.empty());
  EXPECT_TRUE(h.scheduler->idle());
}

TEST(Segments, WhoWantsEveryRowTakesNothingFromTheCacheAndLeavesNothing) {
  SchedulerConfig c = Harness::small();
  c.step_tokens = 32;
  Harness h(c);
  const auto run = [&](uint64_t id, bool wants_every_row) {
    RequestSpec spec;
    spec.id = RequestId{id};
    spec.prompt = text(70);
    spec.ends_when_computed = true;
    spec.wants_every_row = wants_every_row;
    EXPECT_TRUE(h.scheduler->submit(std::move(spec), h.now).ok());
    uint32_t computed = 0;
    while (!h.scheduler->idle()) {
      h.step();
      EXPECT_EQ(h.plan.segments.at(0).wants_every_row, wants_every_row);
      computed += h.plan.segments[0].count;
    }
    return computed;
  };
  EXPECT_EQ(run(1, true), 70U);
  EXPECT_EQ(h.scheduler->stats().cached_blocks, 0U);
  EXPECT_EQ(run(2, false), 70U) << "nothing was left";
  EXPECT_EQ(run(3, false), 6U);
  EXPECT_EQ(run(4, true), 70U) << "nothing is taken";
  EXPECT_EQ(h.scheduler->stats().cached_blocks, 2U);
  EXPECT_TRUE(h.scheduler->check_invariants().ok());
}

TEST(Segments, WhoDependsOnItsLastTokenIsNotPlannedAheadOfIt) {
  SchedulerConfig c = with_drafts(0, 2);
  Harness h(c);
  RequestSpec spec;
  spec.id = RequestId{1};
  spec.prompt = text(10);
  spec.max_new_tokens = 3;
  spec.plans_ahead = false;
  ASSERT_TRUE(h.scheduler->submit(std::move(spec), 0).ok());
  StepPlan first, second;
  h.scheduler->plan(0, first);
  h.scheduler->plan(0, second);
  EXPECT_TRUE(second.empty());
  h.finish(first, 10);
  h.scheduler->plan(h.now, second);
  ASSERT_EQ(second.segments.size(), 1u);
  EXPECT_FALSE(second.segments[0].token_from_previous);
}

SchedulerConfig for_encoder(uint32_t step_tokens, uint32_t depth = 1) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 1;  // nobody takes it
  c.step_tokens = step_tokens;
  c.depth = depth;
  c.whole = true;
  return c;
}

Status submit_whole(Harness& h, uint64_t id, uint32_t tokens,
                    Priority priority = Priority::NORMAL) {
  RequestSpec spec;
  spec.id = RequestId{id};
  spec.prompt = text(tokens, static_cast<TokenId>(id));
  spec.priority = priority;
  spec.ends_when_computed = true;
  spec.second_from = 3;
  return h.scheduler->submit(std::move(spec), h.now);
}

TEST(Segments, AnEncodersTextIsComputedWholeOrNotAtAll) {
  Harness h(for_encoder(100));
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(submit_whole(h, id, 45).ok());
  ASSERT_TRUE(submit_whole(h, 4, 100).ok());
  ASSERT_TRUE(submit_whole(h, 5, 1).ok());
  h.step();
  ASSERT_EQ(h.plan.segments.size(), 2u) << "a third of them does not fit, and nobody goes ahead";
  for (const Segment& segment : h.plan.segments) {
    EXPECT_EQ(segment.start, 0u);
    EXPECT_EQ(segment.count, 45u);
    EXPECT_TRUE(segment.ends && segment.wants_every_row);
    EXPECT_TRUE(segment.blocks.empty());
    EXPECT_EQ(segment.second_from, 3u);
  }
  EXPECT_EQ(h.ends.size(), 2u);
  EXPECT_EQ(h.explain(3).wait, WaitReason::kStepBudget);
  EXPECT_EQ(h.explain(4).wait, WaitReason::kBehindOthers);
  h.step();
  EXPECT_EQ(h.plan.segments.size(), 1u);
  h.step();
  EXPECT_EQ(h.plan.tokens, 100u);
  h.step();
  EXPECT_EQ(h.plan.tokens, 1u);
  EXPECT_EQ(h.ends.size(), 5u);
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
  EXPECT_EQ(h.scheduler->stats().cached_blocks, 0u);
}

TEST(Segments, AnEncoderRefusesWhatDoesNotFitAStepAndWhatAsksForTokens) {
  Harness h(for_encoder(100));
  const Status long_one = submit_whole(h, 1, 101);
  EXPECT_EQ(long_one.code(), Code::kOutOfRange);
  EXPECT_EQ(long_one.message(), "a text of 101 tokens is computed in one step, which holds 100");
  EXPECT_EQ(h.submit(2, text(5)).code(), Code::kUnimplemented);
  EXPECT_TRUE(submit_whole(h, 3, 100).ok());
}

// Its first and its third token take long to draw.
TEST(Segments, WhoIsPutOffHasNoSegmentUntilItIsResumed) {
  Harness h;
  h.must_submit(1, text(64), 4);
  h.must_submit(2, text(5, 1), 8);
  const auto put_off = [&](uint64_t id) {
    h.scheduler->plan(h.now, h.plan);
    StepResult result;
    result.reset(h.plan.step);
    result.elapsed_us = 1000;
    for (const Segment& segment : h.plan.segments) {
      if (segment.request.value == id) {
        result.add(SegmentOutcome::kPutOff);
      } else {
        result.add(SegmentOutcome::kOk, std::vector<TokenId>(segment.samples, kAnswer));
      }
    }
    h.commit(result);
  };
  for (const uint32_t computed : {63U, 65U}) {
    put_off(1);
    EXPECT_EQ(h.explain(1).computed_tokens, computed);
    for (int i = 0; i < 2; ++i) {
      h.step();
      EXPECT_EQ(h.segment_of(1), nullptr);
      EXPECT_NE(h.segment_of(2), nullptr);
      EXPECT_EQ(h.explain(1).wait, WaitReason::kDrawUnderWay);
    }
    h.scheduler->resume(RequestId{1});
    h.step();
    ASSERT_NE(h.segment_of(1), nullptr);
    EXPECT_EQ(h.segment_of(1)->start, computed);
    EXPECT_EQ(h.segment_of(1)->count, 1U);
    EXPECT_EQ(h.segment_of(1)->samples, 1U);
    h.step();
  }
  h.run_out();
  EXPECT_EQ(h.answers[1].size(), 4U);
  EXPECT_EQ(h.ends[1], FinishReason::kLength);
  h.scheduler->resume(RequestId{1});  // nobody
}

TEST(Segments, APutOffResultMustBeOne) {
  for (const bool with_token : {false, true}) {
    Harness h;
    h.must_submit(1, text(5), 4);
    h.scheduler->plan(h.now, h.plan);
    StepResult result;
    result.reset(h.plan.step);
    result.add(SegmentOutcome::kPutOff, std::vector<TokenId>(with_token ? 1 : 0, kAnswer));
    h.commit(result);
    EXPECT_EQ(h.ends.contains(1), with_token);
  }
}

TEST(Segments, AnEncodersTextsAreNotPreempted) {
  SchedulerConfig c = for_encoder(100, 2);
  c.max_batch = 2;
  Harness h(c);
  ASSERT_TRUE(submit_whole(h, 1, 10, Priority::LOW).ok());
  ASSERT_TRUE(submit_whole(h, 2, 10, Priority::LOW).ok());
  StepPlan first, second;
  h.scheduler->plan(h.now, first);
  EXPECT_EQ(first.segments.size(), 2u);
  ASSERT_TRUE(submit_whole(h, 3, 10, Priority::HIGH).ok());
  h.scheduler->plan(h.now, second);
  EXPECT_TRUE(second.empty() && second.preempted.empty());
  EXPECT_EQ(h.explain(3).wait, WaitReason::kBatchFull);
  h.finish(first, 1000);
  h.run_out();
  EXPECT_EQ(h.ends.size(), 3u);
}

}  // namespace
}  // namespace skein
