// StepRing: steps come back in order, and one that fails is run again without those to blame.
#include "engine/loop/step_ring.h"

#include <gtest/gtest.h>

#include "engine/fake_runner.h"

namespace skein {
namespace {

uint64_t reruns_of(const StepRing& ring) {
  EngineSnapshot snapshot;
  ring.report(snapshot);
  return snapshot.reruns;
}

constexpr uint32_t kPrompt = 3;

class StepRingTest : public ::testing::Test {
 protected:
  // A step of these requests' first segments, or of their second where `ahead`.
  static void plan(StepUnderWay& step, uint64_t number, const std::vector<uint64_t>& ids,
                   bool ahead = false) {
    static const std::vector<TokenId> kTokens(kPrompt, 1);
    step.plan.reset(number, 8);
    step.live.clear();
    for (const uint64_t id : ids) {
      Segment segment;
      segment.request = RequestId(id);
      segment.start = ahead ? kPrompt : 0;
      segment.count = ahead ? 1 : kPrompt;
      segment.samples = 1;
      segment.token_from_previous = ahead;
      if (!ahead) segment.tokens = kTokens;
      step.plan.segments.push_back(segment);
      Submission submission{RequestId(id), {}, std::make_shared<TokenStream>()};
      submission.request.prompt = kTokens;
      step.live.push_back(std::make_shared<EngineRequest>(std::move(submission), kFakeVocab));
    }
  }
  StepRing make(uint32_t depth) {
    model_->depth = depth;
    return StepRing(std::make_unique<FakeRunner>(model_), depth, 8);
  }
  static std::vector<TokenId> tokens(StepUnderWay& step, size_t i) {
    return step.result.segments()[i].tokens;
  }

  std::shared_ptr<FakeModel> model_ = std::make_shared<FakeModel>();
};

TEST_F(StepRingTest, OldestComesFirstAndNoMoreThanTheRunnerTakesAreStarted) {
  StepRing ring = make(2);
  for (const uint64_t id : {1, 2}) {
    ASSERT_TRUE(ring.may_start());
    plan(ring.next(), id, {id});
    ring.start(0);
  }
  EXPECT_FALSE(ring.may_start());
  EXPECT_EQ(ring.finish().plan.step, 1U);
  EXPECT_EQ(ring.under_way(), 1U);
  EXPECT_EQ(ring.finish().plan.step, 2U);
  EXPECT_EQ(reruns_of(ring), 0U);
}

TEST_F(StepRingTest, StepThatThrowsIsRunSegmentBySegment) {
  model_->throws = {2};
  StepRing ring = make(1);
  plan(ring.next(), 1, {1, 2, 3});
  ring.start(0);
  StepUnderWay& step = ring.finish();
  EXPECT_EQ(tokens(step, 0), std::vector{FakeModel::token(1, kPrompt)});
  EXPECT_FALSE(step.details[1].status.ok());
  EXPECT_EQ(tokens(step, 2), std::vector{FakeModel::token(3, kPrompt)});
  EXPECT_EQ(reruns_of(ring), 1U);
}

TEST_F(StepRingTest, StepBehindOneThatThrewTakesItsTokensFromTheSecondRun) {
  model_->throws = {2};
  StepRing ring = make(2);
  plan(ring.next(), 1, {1, 2});
  ring.start(0);
  StepUnderWay& second = ring.next();
  plan(second, 2, {1}, true);
  ring.start(0);
  const std::vector<TokenId> first = tokens(ring.finish(), 0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_FALSE(ring.may_start()) << "behind a step that waits to be run again";
  second.live[0]->last_token = first[0];
  ring.finish();
  EXPECT_EQ(second.plan.step, 2U);
  EXPECT_EQ(tokens(second, 0), std::vector{FakeModel::token(1, kPrompt + 1)});
  EXPECT_EQ(model_->fed[1].at(kPrompt), first[0]);
  EXPECT_EQ(model_->ahead, 1U) << "only in the run that did not count";
  EXPECT_TRUE(ring.may_start());
}

TEST_F(StepRingTest, LostRunnerPassesThrough) {
  StepRing ring = make(1);
  plan(ring.next(), 1, {1});
  ring.start(0);
  model_->lost = true;
  EXPECT_THROW(ring.finish(), RunnerLost);
}

}  // namespace
}  // namespace skein
