// Limits that servers share: what all of them admit together is what one would.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/auth/rate_limiter.h"
#include "server/store/postgres_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using testing::integer_of;

class SharedLimitsTest : public PostgresTest {
 protected:
  SharedLimitsTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      stores_.push_back(node(name));
      limiters_.push_back(std::make_unique<RateLimiter>(clock_, stores_.back().get()));
    }
  }
  static Principal key(uint32_t requests, uint64_t tokens) {
    Principal who;
    who.key_id = "k";
    who.requests_per_minute = requests;
    who.tokens_per_minute = tokens;
    return who;
  }

  SystemClock clock_;
  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<std::unique_ptr<RateLimiter>> limiters_;
};

TEST_F(SharedLimitsTest, ThreeServersAdmitWhatOneWould) {
  const Principal who = key(600, 0);  // ten a second
  std::atomic<int> admitted{0};
  const auto began = Steady::now();
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      while (Steady::now() - began < 2s) {
        if (limiters_[static_cast<size_t>(i % 3)]->admit(who, 1).admitted()) ++admitted;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const double seconds = std::chrono::duration<double>(Steady::now() - began).count();
  EXPECT_LE(admitted, 600 + 10 * seconds + 1) << "a minute's worth and what came meanwhile";
  EXPECT_GE(admitted, 600 + 10 * 1.5) << "and no less";
}

TEST_F(SharedLimitsTest, TokensAreTakenTogetherWithTheRequestOrNotAtAll) {
  const Principal who = key(10, 100);
  EXPECT_EQ(limiters_[0]->admit(who, 60).reserved, 60U);
  const Admission refused = limiters_[1]->admit(who, 60);
  EXPECT_EQ(refused.exceeded, RateLimit::kTokens);
  EXPECT_NEAR(static_cast<double>(refused.retry_after_us), 12e6, 1e6);
  EXPECT_EQ(limiters_[1]->admit(who, 30).reserved, 30U) << "a smaller one fits";
  EXPECT_TRUE(limiters_[2]->admit(who, 101).never);
  const Admission all = limiters_[2]->admit(who, 1, RateLimiter::Take::kAll);
  EXPECT_GE(all.reserved, 10U);
  // What was not used comes back, on every server.
  limiters_[0]->settle(who, 60, 0);
  EXPECT_TRUE(within(2s, [&] { return limiters_[1]->admit(who, 50).admitted(); }));
}

TEST_F(SharedLimitsTest, ARequestThatWasTakenIsNotTakenAgain) {
  const Principal who = key(1, 100);
  EXPECT_TRUE(limiters_[0]->admit(who, 1).admitted());
  EXPECT_FALSE(limiters_[0]->admit(who, 1).admitted());
  EXPECT_EQ(limiters_[0]->admit(who, 50, RateLimiter::Take::kExactly, 0).reserved, 50U);
  EXPECT_FALSE(limiters_[1]->admit(who, 60, RateLimiter::Take::kExactly, 0).admitted());
}

TEST_F(SharedLimitsTest, ADebtIsWaitedFor) {
  const Principal who = key(0, 600);
  EXPECT_TRUE(limiters_[0]->admit(who, 600).admitted());
  limiters_[0]->settle(who, 600, 900);
  EXPECT_TRUE(
      within(2s, [&] { return limiters_[1]->admit(who, 1).retry_after_us > 29 * kUsPerSecond; }));
}

// The clock of the database was ahead by a day, and was set right.
TEST_F(SharedLimitsTest, AClockThatWasAheadFillsTheBucketAgain) {
  const Principal who = key(6000, 0);  // a hundred a second
  while (limiters_[0]->admit(who, 1, RateLimiter::Take::kExactly, 1000).admitted()) continue;
  ASSERT_TRUE(testing::sql(*stores_[0], "UPDATE buckets SET at = at + interval '1 day'").ok());
  EXPECT_TRUE(within(5s, [&] { return limiters_[1]->admit(who, 1).admitted(); }));
}

// However much a key may use, and however much a request asks for.
TEST_F(SharedLimitsTest, HugeAmountsAreTakenAsTheLimiterTakesThem) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  Principal who = key(1'000'000, kHuge);
  const Admission first = limiters_[0]->admit(who, kHuge);
  EXPECT_TRUE(first.admitted());
  EXPECT_EQ(first.reserved, uint64_t{1} << 30) << "beyond it a limit is none";
  EXPECT_EQ(integer_of(*stores_[0], "SELECT tokens_level FROM buckets"), 0) << "by the store";
  limiters_[0]->settle(who, 0, kHuge >> 30);
  EXPECT_TRUE(limiters_[1]->admit(key(0, 0), kHuge).admitted());
}

TEST_F(SharedLimitsTest, AFloodEndsAtTheServer) {
  const Principal who = key(1, 0);
  EXPECT_TRUE(limiters_[0]->admit(who, 1).admitted());
  const auto refused = limiters_[0]->admit(who, 1);
  EXPECT_GT(refused.retry_after_us, 50 * kUsPerSecond);
  const auto began = Steady::now();
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(limiters_[0]->admit(who, 1).admitted());
  EXPECT_LT(Steady::now() - began, 5s) << "the store was asked about each";
}

// Whoever asks waits for it in a worker, of which there are few.
TEST_F(SharedLimitsTest, AStoreThatStandsStillIsNotWaitedFor) {
  const Principal who = key(30, 0);
  EXPECT_TRUE(within(15s, [&] { return stores_[0]->nodes() == 3; }));
  const auto began = Steady::now();
  int admitted = 0;
  {
    const Frozen frozen(integer_of(*stores_[0], "SELECT CAST(pg_backend_pid() AS BIGINT)"));
    while (limiters_[0]->admit(who, 1).admitted()) ++admitted;
  }
  EXPECT_EQ(admitted, 10);
  EXPECT_LT(Steady::now() - began, 5s);
}

TEST_F(SharedLimitsTest, WithoutTheStoreAServerGivesItsPart) {
  const Principal who = key(30, 0);
  EXPECT_TRUE(within(15s, [&] { return stores_[0]->nodes() == 3; }));
  ASSERT_TRUE(testing::sql(*stores_[0], "ALTER TABLE buckets RENAME TO away").ok());
  int admitted = 0;
  while (limiters_[0]->admit(who, 1).admitted()) ++admitted;
  EXPECT_EQ(admitted, 10);
}

}  // namespace
}  // namespace skein
