#include "server/http/byte_budget.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "server/test_application.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

TEST(ByteBudget, HoldsGrowAndShrinkAndGiveBack) {
  ByteBudget budget(100);
  {
    ByteBudget::Hold a(budget, "a"), b(budget, "b");
    EXPECT_TRUE(a.resize(50));
    EXPECT_FALSE(a.resize(51)) << "half of it for one account";
    EXPECT_EQ(a.bytes(), 50U);
    EXPECT_TRUE(b.resize(50));
    ByteBudget::Hold c(budget, "c");
    EXPECT_FALSE(c.resize(1)) << "nothing is left";
    EXPECT_TRUE(a.resize(40));
    EXPECT_TRUE(c.resize(10));
    EXPECT_EQ(budget.used_bytes(), 100U);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST(ByteBudget, AnAccountIsTheSumOfItsHolds) {
  ByteBudget budget(100);
  ByteBudget::Hold first(budget, "a"), second(budget, "a");
  EXPECT_TRUE(first.resize(30));
  EXPECT_FALSE(second.resize(21));
  EXPECT_TRUE(second.resize(20));
}

TEST(ByteBudget, ManyThreadsNeverPassTheLimit) {
  ByteBudget budget(1000);
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ByteBudget::Hold hold(budget, std::string(1, static_cast<char>('a' + t)));
      for (uint64_t i = 0; i < 20'000; ++i) {
        hold.resize(i * 7919 % 501);
        if (budget.used_bytes() > 1000) passed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(passed);
  EXPECT_EQ(budget.used_bytes(), 0U);
}

// Sixty clients that hold back the last byte of a body.
TEST(RequestMemory, BodiesThatAreBeingReadStayWithinTheBudget) {
  constexpr uint64_t kBudget = 8 << 20, kBody = 1 << 20;
  TestServer test({}, {}, kBudget);
  test.start();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(kBody) + "\r\n\r\n";
  std::vector<RawClient> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(test.client());
    clients.back().send(head + std::string(kBody - 1, 'x'));
  }
  int refused = 0;
  EXPECT_TRUE(eventually(
      [&] {
        refused = 0;
        for (RawClient& client : clients) {
          client.receive(0);
          refused += client.received().starts_with("HTTP/1.1 503") ? 1 : 0;
        }
        return refused >= 56;
      },
      30s))
      << refused;
  EXPECT_LE(test.memory.used_bytes(), test.memory.account_limit_bytes());
  EXPECT_GT(test.memory.used_bytes(), 0U) << "some are still being read";
  EXPECT_TRUE(test.healthy());
  clients.clear();
  EXPECT_TRUE(eventually([&] { return test.memory.used_bytes() == 0; }, 20s));
}

TEST(RequestMemory, AnswersThatNobodyReadsStayWithinTheBudget) {
  constexpr uint64_t kBudget = 32 << 20, kAnswer = 7 << 20;
  TestServer test({}, {}, kBudget);
  test.application.handlers["/large"] = [](const http::Request&, const http::Responder& responder) {
    responder.send({.body = std::string(kAnswer, 'x')});
  };
  test.start();
  std::vector<RawClient> clients;
  int taken = 0, refused = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(test.client(4096));
    clients.back().send(get("/large"));
    const std::string head = clients.back().read_until("\r\n\r\n", 20'000);
    taken += head.starts_with("HTTP/1.1 200") ? 1 : 0;
    refused += head.starts_with("HTTP/1.1 503") ? 1 : 0;
    if (head.starts_with("HTTP/1.1 503")) {
      EXPECT_NE(head.find("Retry-After: 1"), std::string::npos) << head;
    }
  }
  EXPECT_EQ(taken, 2) << "half of the budget holds two";
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(test.memory.used_bytes(), 2 * kAnswer);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return test.memory.used_bytes() == 0; }, 20s));
}

}  // namespace
}  // namespace skein::testing
