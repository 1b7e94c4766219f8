// StepWatch: whom a step that takes long ends, and whom it does not.
#include "engine/loop/step_watch.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

constexpr TimeUs kTimeoutUs = 2 * kUsPerSecond;
constexpr TimeUs kSlowUs = 300 * kUsPerMs;  // of a step that keeps the loop from deadlines

class StepWatchTest : public ::testing::Test {
 protected:
  std::shared_ptr<TokenStream> add(uint64_t id, TimeUs deadline = kNever) {
    auto stream = std::make_shared<TokenStream>();
    watch_.add(RequestId(id), stream, deadline);
    return stream;
  }
  static GenerationEnd end_of(TokenStream& stream) {
    StreamChunk chunk;
    EXPECT_TRUE(stream.take(chunk) && chunk.end) << "it has not ended";
    return chunk.end.value_or(GenerationEnd{});
  }

  StepWatch watch_{kTimeoutUs};
};

TEST_F(StepWatchTest, DeadlinesAreTheLoopsOwnBetweenStepsAndInShortOnes) {
  const auto late = add(1, 10);
  watch_.look(kNever / 2);
  watch_.set_step_start(1000);
  watch_.look(1000 + kSlowUs / 2);
  EXPECT_FALSE(late->ended());
}

TEST_F(StepWatchTest, SlowStepEndsWhoIsPastItsOwnDeadlineAlone) {
  const auto late = add(1, kSlowUs), patient = add(2);
  watch_.set_step_start(0);
  watch_.look(kSlowUs);
  EXPECT_EQ(end_of(*late).reason, FinishReason::kTimedOut);
  EXPECT_FALSE(patient->ended());
  EXPECT_FALSE(watch_.hung());
}

TEST_F(StepWatchTest, StepOverItsTimeEndsEverythingThatIsLive) {
  const auto late = add(1, kTimeoutUs), patient = add(2), gone = add(3);
  watch_.remove(RequestId(3));
  watch_.set_step_start(0);
  watch_.look(kTimeoutUs - 1);
  EXPECT_FALSE(watch_.hung());
  watch_.look(kTimeoutUs);
  EXPECT_TRUE(watch_.hung());
  EXPECT_EQ(end_of(*late).reason, FinishReason::kTimedOut)
      << "its own deadline is the truer reason";
  const GenerationEnd end = end_of(*patient);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status.code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(gone->ended());
  watch_.set_step_start(kNever);
  watch_.set_recovered();
  watch_.look(kNever / 2);
  EXPECT_FALSE(watch_.hung());
}

TEST_F(StepWatchTest, EndAllTellsEveryoneOnce) {
  const auto one = add(1), other = add(2);
  watch_.end_all("lost");
  EXPECT_EQ(end_of(*one).status.message(), "lost");
  EXPECT_EQ(end_of(*other).status.code(), Code::kInternal);
  const auto later = add(3);
  watch_.clear();
  watch_.end_all("again");
  EXPECT_FALSE(later->ended());
}

TEST(WatchInterval, FindsAHangWithinAnEighthAndADeadlineWithinAQuarterSecond) {
  EXPECT_EQ(watch_interval_us(800 * kUsPerMs), 100 * kUsPerMs);
  EXPECT_EQ(watch_interval_us(60 * kUsPerSecond), 250 * kUsPerMs);
  EXPECT_EQ(watch_interval_us(1), kUsPerMs);
}

}  // namespace
}  // namespace skein
