// How soon a request's first token comes beside others that stream: prompts spare streams, but not
// those of a worse class.
#include <gtest/gtest.h>

#include "sched/cost_model.h"
#include "sched/harness.h"

namespace skein {
namespace {

constexpr uint64_t kProbe = 100;

// A machine on which a step takes 10 ms and one more for each row. Four streams take 14 ms alone,
// so that prompts get what is left of 60 ms: 46 rows.
class FirstTokenTest : public ::testing::Test {
 protected:
  explicit FirstTokenTest(TimeUs target_us = 0) : h_(config(target_us)) {}

  static SchedulerConfig config(TimeUs target_us) {
    SchedulerConfig c = Harness::small();
    c.pool_blocks = 1024;
    c.inter_token_target_us = target_us;
    return c;
  }
  const StepPlan& step() {
    h_.scheduler->plan(h_.now, h_.plan);
    h_.finish(h_.plan, kUsPerMs * (10 + h_.plan.tokens));
    return h_.plan;
  }
  void stream(Priority priority) {
    for (uint64_t id = 1; id <= 4; ++id) {
      h_.must_submit(id, text(16, static_cast<TokenId>(id)), 1000, priority);
    }
    for (int i = 0; i < 40; ++i) step();
    ASSERT_EQ(h_.plan.tokens, 4U);
  }
  void end_streams() {
    for (uint64_t id = 1; id <= 4; ++id) {
      ASSERT_TRUE(h_.scheduler->cancel(RequestId{id}, FinishReason::kClient));
    }
  }
  void probe(Priority priority, uint32_t tokens = 128) {
    h_.must_submit(kProbe, text(tokens, 50), 4, priority);
    step();
    ASSERT_NE(h_.segment_of(kProbe), nullptr);
  }

  Harness h_;
};

TEST_F(FirstTokenTest, StreamsOfItsClassAreSpared) {
  stream(Priority::NORMAL);
  probe(Priority::NORMAL);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);
}

TEST_F(FirstTokenTest, StreamsOfABetterClassAreSpared) {
  stream(Priority::HIGH);
  probe(Priority::NORMAL);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);
}

TEST_F(FirstTokenTest, StreamsOfAWorseClassHoldItUpByNoStep) {
  stream(Priority::LOW);
  probe(Priority::NORMAL);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 128U);
  EXPECT_EQ(h_.segment_of(kProbe)->samples, 1U);
}

// All the tokens that a step has are as many as it gets.
TEST_F(FirstTokenTest, AStepHasNoMoreTokensForIt) {
  stream(Priority::LOW);
  probe(Priority::HIGH, 1000);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 224U);  // of 252, to the border of a block
  EXPECT_EQ(h_.plan.segments.size(), 5U) << "streams go on";
}

// Who has waited for a class is not of a worse one any more.
TEST_F(FirstTokenTest, StreamsThatHaveAgedAreSpared) {
  stream(Priority::LOW);
  h_.now += h_.config.us_per_class;
  probe(Priority::NORMAL);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);
}

TEST_F(FirstTokenTest, OneStreamOfItsClassAmongOthersIsSpared) {
  stream(Priority::LOW);
  h_.must_submit(5, text(16, 5), 1000, Priority::NORMAL);
  step();
  step();
  probe(Priority::NORMAL);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);
}

// What a prompt of a better class takes of the time is gone for the others: they make its step no
// longer.
TEST_F(FirstTokenTest, APromptOfAWorseClassMakesItsStepNoLonger) {
  stream(Priority::LOW);
  h_.must_submit(5, text(16, 5), 4, Priority::LOW);
  probe(Priority::NORMAL, 64);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 64U);
  EXPECT_EQ(h_.segment_of(5), nullptr);
  step();
  ASSERT_NE(h_.segment_of(5), nullptr);
  EXPECT_EQ(h_.segment_of(5)->count, 16U);
}

// Where nobody streams, the step that a better class's next request finds under way is a short one
// all the same.
TEST_F(FirstTokenTest, PromptsLeaveRoomForABetterClassThatAsks) {
  stream(Priority::NORMAL);
  end_streams();
  for (uint64_t id = 11; id <= 26; ++id) {
    h_.must_submit(id, text(16, static_cast<TokenId>(id)), 1, Priority::LOW);
  }
  step();
  EXPECT_EQ(h_.plan.tokens, 60U);  // which take 60 ms by themselves
  h_.now += h_.config.us_per_class;
  step();
  EXPECT_EQ(h_.plan.tokens, 196U) << "nobody of a better class has asked for so long: all the rest";
}

// A stream that need not be spared changes nothing about that.
TEST_F(FirstTokenTest, PromptsBesideStreamsOfAWorseClassLeaveRoomForABetterOneThatAsks) {
  stream(Priority::LOW);
  h_.must_submit(5, text(16, 5), 1, Priority::HIGH);
  step();
  step();
  probe(Priority::NORMAL, 256);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);  // of 60, to the border of a block
}

TEST_F(FirstTokenTest, APromptThatSparesWhoAsksMayTakeAsLongAsASlowedStep) {
  stream(Priority::LOW);
  h_.must_submit(5, text(16, 5), 1, Priority::HIGH);
  step();
  step();
  probe(Priority::NORMAL, 60);  // with the four streams 74 ms
  EXPECT_EQ(h_.segment_of(kProbe)->count, 60U);
}

TEST_F(FirstTokenTest, PromptsLeaveNoRoomForTheirOwnClassOrAWorseOne) {
  stream(Priority::LOW);
  end_streams();
  h_.must_submit(11, text(128, 11), 1, Priority::NORMAL);
  h_.must_submit(12, text(128, 12), 1, Priority::NORMAL);
  step();
  EXPECT_EQ(h_.plan.tokens, 256U);
}

class FirstTokenWithATargetTest : public FirstTokenTest {
 protected:
  FirstTokenWithATargetTest() : FirstTokenTest(60 * kUsPerMs) {}
};

// It is what the operator has set for everybody's streams.
TEST_F(FirstTokenWithATargetTest, StreamsOfAWorseClassAreSparedToo) {
  stream(Priority::LOW);
  probe(Priority::HIGH);
  EXPECT_EQ(h_.segment_of(kProbe)->count, 32U);
}

}  // namespace
}  // namespace skein
