#include "sched/queue_door.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

using Kind = DoorAnswer::Kind;

constexpr TimeUs kGap = 10 * kUsPerSecond;

class QueueDoorTest : public ::testing::Test {
 protected:
  // How many of `count` requests of a tenant get in.
  uint32_t enter(uint64_t tenant, uint32_t count, TimeUs now, Priority priority = Priority::LOW) {
    uint32_t entered = 0;
    for (uint32_t i = 0; i < count; ++i) {
      entered += door_.enter({.tenant = tenant, .priority = priority}, now).entered() ? 1 : 0;
    }
    return entered;
  }
  void start(uint64_t tenant, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) door_.leave(tenant);
  }
  void end(uint32_t count, TimeUs now) {
    for (uint32_t i = 0; i < count; ++i) door_.note_end(now);
  }

  QueueDoor door_{{.max_queue = 1024, .max_batch = 32, .us_per_class = kGap}};
};

TEST_F(QueueDoorTest, OneTenantLeavesPlacesToTheOthers) {
  EXPECT_EQ(enter(1, 2000, 0), 1024U - 32U);
  EXPECT_EQ(enter(2, 2000, 0), 32U) << "as many as the batch could start at once";
  EXPECT_EQ(door_.enter({.tenant = 3, .priority = Priority::NORMAL}, 0).kind, Kind::kQueueFull);
  EXPECT_EQ(enter(4, 2000, 0, Priority::HIGH), 32U) << "HIGH has an eighth more";
}

TEST_F(QueueDoorTest, SmallQueuesKeepAnEighth) {
  QueueDoor small({.max_queue = 16, .max_batch = 4, .us_per_class = kGap});
  uint32_t entered = 0;
  while (small.enter({.tenant = 1}, 0).entered()) ++entered;
  EXPECT_EQ(entered, 14U);
}

TEST_F(QueueDoorTest, WhileOthersAskATenantHoldsWhatStartsInHalfAGap) {
  door_.set_open(0);
  EXPECT_EQ(enter(2, 1, 0), 1U);
  start(2, 1);
  EXPECT_EQ(enter(1, 100, 0), 4U) << "an eighth of the batch, before anything was measured";
  end(50, kUsPerSecond);
  EXPECT_EQ(enter(1, 100, kUsPerSecond), 46U) << "fifty ended within the last five seconds";
  EXPECT_EQ(enter(1, 100, 7 * kUsPerSecond), 0U) << "none did since";
  const DoorAnswer refused = door_.enter({.tenant = 1}, 7 * kUsPerSecond);
  EXPECT_EQ(refused.kind, Kind::kShareFull);
  EXPECT_EQ(refused.wanted, 51U);
  EXPECT_EQ(refused.places, 4U);
}

TEST_F(QueueDoorTest, OthersAskForAClassGap) {
  door_.set_open(0);
  EXPECT_EQ(enter(2, 1, 0), 1U);
  start(2, 1);
  EXPECT_EQ(enter(1, 100, kGap), 4U);
  EXPECT_EQ(enter(1, 100, kGap + 1), 100U) << "it is alone again";
  // One that was refused asks, too.
  EXPECT_EQ(enter(3, 100, kGap + 2), 4U);
  start(3, 4);
  EXPECT_EQ(enter(1, 1, 2 * kGap + 2), 0U);
  EXPECT_EQ(enter(1, 1, 2 * kGap + 3), 1U);
}

TEST_F(QueueDoorTest, OneWhoWaitsAsksHoweverLong) {
  door_.set_open(0);
  EXPECT_EQ(enter(2, 1, 0), 1U);
  EXPECT_EQ(enter(1, 100, 100 * kGap), 4U);
  start(2, 1);
  EXPECT_EQ(enter(1, 100, 100 * kGap), 100U);
}

TEST_F(QueueDoorTest, WhatATenantWasLetInWithStays) {
  EXPECT_EQ(enter(1, 500, 0), 500U);
  EXPECT_EQ(enter(2, 1, 0), 1U);
  EXPECT_EQ(door_.held(1), 500U);
  EXPECT_EQ(enter(1, 1, 0), 0U);
  start(1, 499);
  EXPECT_EQ(enter(1, 100, 0), 31U) << "up to the open places of the batch";
}

// The choices of one answer: what was begun is finished, whoever asks meanwhile.
TEST_F(QueueDoorTest, WhoFollowsOneThatHasEndedIsNotBoundByTheShare) {
  door_.set_open(0);
  EXPECT_EQ(enter(2, 1, 0), 1U);
  EXPECT_EQ(enter(1, 100, 0), 4U);
  EXPECT_TRUE(door_.enter({.tenant = 1, .follows = true}, 0).entered());
  EXPECT_EQ(door_.held(1), 5U);
  EXPECT_EQ(enter(1, 1, 0), 0U);
  uint32_t entered = 0;
  while (door_.enter({.tenant = 1, .follows = true}, 0).entered()) ++entered;
  EXPECT_EQ(entered, 1024U - 32U - 5U) << "as many as it may hold when it is alone";
}

TEST_F(QueueDoorTest, BackgroundIsLimitedAndLimitsNobody) {
  door_.set_open(0);
  EXPECT_TRUE(door_.enter({.tenant = 9, .background = true}, 0).entered());
  EXPECT_EQ(enter(1, 100, 0), 100U);
  uint32_t entered = 0;
  while (door_.enter({.tenant = 9, .background = true}, 0).entered()) ++entered;
  EXPECT_EQ(entered, 3U);
}

TEST_F(QueueDoorTest, RetryAfterFollowsWhatStarts) {
  door_.set_open(0);
  EXPECT_EQ(enter(1, 100, 0), 100U);
  EXPECT_FALSE(door_.share_retry_us(1, 0)) << "nobody else asks";
  EXPECT_EQ(enter(2, 1, 0), 1U);
  end(50, 0);  // ten a second
  EXPECT_EQ(door_.share_retry_us(1, 0), TimeUs{51} * kUsPerSecond / 10);
  EXPECT_FALSE(door_.share_retry_us(2, 0));
}

TEST_F(QueueDoorTest, TenantsAreForgottenWhenTheyHoldNothing) {
  for (uint64_t tenant = 0; tenant < 100'000; ++tenant) {
    ASSERT_EQ(enter(tenant, 1, static_cast<TimeUs>(tenant)), 1U);
    start(tenant, 1);
  }
  EXPECT_EQ(door_.waiting(), 0U);
}

TEST(QueueDoorDeathTest, NobodyLeavesAPlaceThatItDoesNotHold) {
  QueueDoor door({.max_queue = 8, .max_batch = 2, .us_per_class = kGap});
  EXPECT_DEATH(door.leave(7), "tenant 7 leaves a place");
}

}  // namespace
}  // namespace skein
