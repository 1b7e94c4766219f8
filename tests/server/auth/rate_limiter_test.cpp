#include "server/auth/rate_limiter.h"

#include <atomic>
#include <gtest/gtest.h>
#include <limits>
#include <thread>
#include <vector>

namespace skein {
namespace {

Principal who(uint32_t requests_per_minute, uint64_t tokens_per_minute,
              const std::string& id = "k") {
  Principal principal;
  principal.key_id = id;
  principal.requests_per_minute = requests_per_minute;
  principal.tokens_per_minute = tokens_per_minute;
  return principal;
}

class RateLimiterTest : public ::testing::Test {
 protected:
  ManualClock clock_{12'345};
  RateLimiter limiter_{clock_};
};

TEST_F(RateLimiterTest, WithoutLimitsEverythingIsAdmitted) {
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(limiter_.admit(who(0, 0), std::numeric_limits<uint64_t>::max()).admitted());
  }
}

TEST_F(RateLimiterTest, RequestsAMinute) {
  const Principal key = who(60, 0);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(limiter_.admit(key, 1).admitted()) << i;
  const Admission refused = limiter_.admit(key, 1);
  EXPECT_EQ(refused.exceeded, RateLimit::kRequests);
  EXPECT_EQ(refused.retry_after_us, kUsPerSecond);
  clock_.advance(kUsPerSecond - 1);
  EXPECT_FALSE(limiter_.admit(key, 1).admitted());
  clock_.advance(1);
  EXPECT_TRUE(limiter_.admit(key, 1).admitted());
  EXPECT_FALSE(limiter_.admit(key, 1).admitted());
}

TEST_F(RateLimiterTest, NeverMoreThanTheLimitAndAMinutesWorth) {
  const Principal key = who(7, 0);  // 60 s / 7 is no whole number of microseconds
  int admitted = 0;
  for (int i = 0; i < 600'000; ++i) {  // ten minutes
    admitted += limiter_.admit(key, 0).admitted() ? 1 : 0;
    clock_.advance(kUsPerMs);
  }
  EXPECT_EQ(admitted, 7 + 69);  // the 70th comes with the last microsecond of the ten minutes
}

TEST_F(RateLimiterTest, TokensAMinuteAndWhatWasReallyUsed) {
  const Principal key = who(0, 600);
  ASSERT_TRUE(limiter_.admit(key, 500).admitted());
  const Admission refused = limiter_.admit(key, 200);
  EXPECT_EQ(refused.exceeded, RateLimit::kTokens);
  EXPECT_EQ(refused.retry_after_us, 10 * kUsPerSecond);  // 100 tokens at 10 a second
  limiter_.settle(key, 500, 50);
  EXPECT_TRUE(limiter_.admit(key, 200).admitted());
  limiter_.settle(key, 200, 900);  // a debt: 600 - 50 - 900 = -350
  EXPECT_EQ(limiter_.admit(key, 1).retry_after_us, 35'100'000);
  clock_.advance(35'100'000);
  EXPECT_TRUE(limiter_.admit(key, 1).admitted());
}

TEST_F(RateLimiterTest, ARequestLargerThanAMinutesWorthIsNeverAdmitted) {
  const Principal key = who(0, 100);
  const Admission refused = limiter_.admit(key, 101);
  EXPECT_FALSE(refused.admitted());
  EXPECT_TRUE(refused.never);
  EXPECT_EQ(refused.wanted, 101U);
  EXPECT_EQ(refused.per_minute, 100U);
  EXPECT_FALSE(limiter_.admit(who(1, 0), 1'000'000).never) << "it has no limit of tokens";
}

TEST_F(RateLimiterTest, WhoCannotSayHowManyTakesAllThatAreLeft) {
  const Principal key = who(0, 100);
  EXPECT_EQ(limiter_.admit(key, 30).reserved, 30U);
  EXPECT_EQ(limiter_.admit(key, 10, RateLimiter::Take::kAll).reserved, 70U);
  EXPECT_FALSE(limiter_.admit(key, 1).admitted()) << "no two count on the same tokens";
  limiter_.settle(key, 70, 20);
  EXPECT_FALSE(limiter_.admit(key, 51, RateLimiter::Take::kAll).admitted());
  EXPECT_EQ(limiter_.admit(key, 50, RateLimiter::Take::kAll).reserved, 50U);
}

TEST_F(RateLimiterTest, ADebtIsKeptHoweverLargeItIs) {
  const Principal key = who(0, 100);
  limiter_.settle(key, 0, 100'100);
  clock_.advance(1000 * 60 * kUsPerSecond);
  EXPECT_FALSE(limiter_.admit(key, 1).admitted());
  clock_.advance(kUsPerSecond);
  EXPECT_TRUE(limiter_.admit(key, 1).admitted());
}

TEST_F(RateLimiterTest, ARefusalTakesNothing) {
  const Principal key = who(1, 100);
  EXPECT_TRUE(limiter_.admit(key, 90).admitted());
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(limiter_.admit(key, 90).admitted());
  clock_.advance(60 * kUsPerSecond);
  EXPECT_TRUE(limiter_.admit(key, 90).admitted());
}

TEST_F(RateLimiterTest, KeysDoNotShareAndLimitsMayChange) {
  EXPECT_TRUE(limiter_.admit(who(1, 0, "a"), 0).admitted());
  EXPECT_FALSE(limiter_.admit(who(1, 0, "a"), 0).admitted());
  EXPECT_TRUE(limiter_.admit(who(1, 0, "b"), 0).admitted());
  EXPECT_TRUE(limiter_.admit(who(2, 0, "a"), 0).admitted());  // one of two was used
  EXPECT_FALSE(limiter_.admit(who(2, 0, "a"), 0).admitted());
  EXPECT_TRUE(limiter_.admit(who(0, 0, "a"), 0).admitted());
}

TEST_F(RateLimiterTest, HugeNumbersAndLongSilencesDoNotOverflow) {
  const Principal key =
      who(std::numeric_limits<uint32_t>::max(), std::numeric_limits<uint64_t>::max());
  for (int i = 0; i < 200; ++i) {
    limiter_.settle(key, 0, std::numeric_limits<uint64_t>::max());
  }
  EXPECT_FALSE(limiter_.admit(key, 1).admitted());
  clock_.advance(TimeUs{1} << 60);
  EXPECT_TRUE(limiter_.admit(key, 1U << 30).admitted());
}

TEST_F(RateLimiterTest, ManyThreadsGetTheLimitTogether) {
  std::atomic<int> admitted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) admitted += limiter_.admit(who(150, 0), 0).admitted() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admitted, 150);
}

}  // namespace
}  // namespace skein
