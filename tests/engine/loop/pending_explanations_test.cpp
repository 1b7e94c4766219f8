// PendingExplanations: each is answered once, by the loop, by the watchdog, or at once when too
// many wait.
#include "engine/loop/pending_explanations.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

class PendingExplanationsTest : public ::testing::Test {
 protected:
  void ask(uint64_t id, TimeUs now) {
    pending_.add({{RequestId(id)},
                  [this](const Result<std::vector<Explanation>>& answer) {
                    codes_.push_back(answer.status().code());
                  },
                  now});
  }

  PendingExplanations pending_;
  std::vector<Code> codes_;  // of the answers, in order
};

TEST_F(PendingExplanationsTest, ThoseAskedBeforeATimeAreTakenInOrder) {
  ask(1, 10);
  ask(2, 20);
  ask(3, 30);
  const auto early = pending_.take(30);
  ASSERT_EQ(early.size(), 2U);
  EXPECT_EQ(early[0].ids.front(), RequestId(1));
  EXPECT_EQ(early[1].ids.front(), RequestId(2));
  EXPECT_TRUE(codes_.empty()) << "who takes them answers";
  pending_.refuse(unavailable("late"));
  EXPECT_EQ(codes_, std::vector{Code::kUnavailable});
  EXPECT_TRUE(pending_.take().empty());
}

TEST_F(PendingExplanationsTest, OneTooManyIsRefusedAtOnce) {
  for (size_t i = 0; i < PendingExplanations::kMax; ++i) ask(i, 0);
  EXPECT_TRUE(codes_.empty());
  ask(1000, 0);
  EXPECT_EQ(codes_, std::vector{Code::kResourceExhausted});
  EXPECT_EQ(pending_.take().size(), PendingExplanations::kMax);
}

}  // namespace
}  // namespace skein
