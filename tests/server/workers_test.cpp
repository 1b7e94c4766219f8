#include "server/http/workers.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <new>
#include <sched.h>
#include <semaphore>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "server/http_client.h"

namespace skein::http {
namespace {

using namespace std::chrono_literals;
using testing::eventually;

// One worker that is held until the test lets it go, and the order in which tasks then begin.
class WorkersTest : public ::testing::Test {
 protected:
  WorkersTest() {
    EXPECT_TRUE(workers_.post(
        Priority::HIGH, "", [this] { begun_.release(), go_.acquire(); }, [] {}));
    begun_.acquire();
  }
  bool post(Priority priority, const std::string& name, std::string_view owner = "") {
    return workers_.post(
        priority, owner, [this, name] { note(name); }, [this, name] { note("no " + name); });
  }
  void note(const std::string& name) {
    const std::lock_guard lock(mutex_);
    order_.push_back(name);
  }
  std::vector<std::string> order(size_t count) {
    go_.release();
    EXPECT_TRUE(eventually(
        [&] {
          const std::lock_guard lock(mutex_);
          return order_.size() == count;
        },
        20s));
    return order_;
  }

  std::counting_semaphore<> begun_{0}, go_{0};
  std::mutex mutex_;
  std::vector<std::string> order_;
  ManualClock clock_;
  Workers workers_{{.threads = 1, .queue_limit = 16}, clock_};
};

TEST_F(WorkersTest, AHighTaskIsNotBehindSixteenLowOnes) {
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(post(Priority::LOW, "low"));
  clock_.advance(kUsPerSecond);
  ASSERT_TRUE(post(Priority::NORMAL, "normal"));
  ASSERT_TRUE(post(Priority::HIGH, "high"));
  const std::vector<std::string> order = this->order(18);
  EXPECT_EQ(order[0], "high");
  EXPECT_EQ(order[1], "normal");
}

TEST_F(WorkersTest, WhatHasWaitedForTheClassGapGoesFirst) {
  post(Priority::LOW, "first");
  clock_.advance(20 * kUsPerSecond - 1);
  post(Priority::HIGH, "just in time");
  clock_.advance(1);
  post(Priority::HIGH, "as good, and later");
  clock_.advance(1);
  post(Priority::HIGH, "too late");
  EXPECT_EQ(order(4),
            (std::vector<std::string>{"just in time", "first", "as good, and later", "too late"}));
}

TEST_F(WorkersTest, AFloodOfOneClassKeepsNoOtherOut) {
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(post(Priority::LOW, "low"));
  EXPECT_FALSE(post(Priority::LOW, "low"));
  EXPECT_TRUE(post(Priority::NORMAL, "normal"));
  order(17);
}

TEST_F(WorkersTest, OwnersTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4"}) ASSERT_TRUE(post(Priority::NORMAL, name, "a"));
  for (const char* name : {"b1", "b2"}) ASSERT_TRUE(post(Priority::NORMAL, name, "b"));
  ASSERT_TRUE(post(Priority::NORMAL, "c1", "c"));
  EXPECT_EQ(order(7), (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}));
}

// A flood that is old enough would go before everybody else's tasks, of any class.
TEST_F(WorkersTest, OnlyTheFirstOfAnOwnersTasksHasWaited) {
  for (const char* name : {"a1", "a2", "a3"}) post(Priority::LOW, name, "a");
  clock_.advance(20 * kUsPerSecond + 1);
  post(Priority::LOW, "b1", "b");
  post(Priority::HIGH, "high", "c");
  post(Priority::NORMAL, "normal", "c");
  EXPECT_EQ(order(6), (std::vector<std::string>{"a1", "high", "normal", "b1", "a2", "a3"}));
}

// And those of two owners that are old enough each.
TEST_F(WorkersTest, FloodsOfTwoOwnersHoldUpABetterClassByOneTaskEach) {
  for (const char* name : {"a1", "a2"}) post(Priority::LOW, name, "a");
  for (const char* name : {"b1", "b2"}) post(Priority::LOW, name, "b");
  clock_.advance(20 * kUsPerSecond + 1);
  post(Priority::HIGH, "high", "c");
  EXPECT_EQ(order(5), (std::vector<std::string>{"a1", "b1", "high", "a2", "b2"}));
}

TEST_F(WorkersTest, TasksOfNobodyStandInNoLine) {
  for (const char* name : {"1", "2"}) post(Priority::LOW, name);
  clock_.advance(20 * kUsPerSecond + 1);
  post(Priority::HIGH, "high");
  EXPECT_EQ(order(3), (std::vector<std::string>{"1", "2", "high"}));
}

TEST_F(WorkersTest, AnOwnerHasHalfOfThePlacesWhileOthersWait) {
  for (int i = 0; i < 14; ++i) ASSERT_TRUE(post(Priority::LOW, "a", "a"));
  EXPECT_FALSE(post(Priority::LOW, "a", "a")) << "two are for others";
  EXPECT_TRUE(post(Priority::NORMAL, "a", "a"));
  ASSERT_TRUE(post(Priority::LOW, "b", "b"));
  EXPECT_FALSE(post(Priority::LOW, "a", "a"));
  ASSERT_TRUE(post(Priority::LOW, "b", "b"));
  EXPECT_FALSE(post(Priority::LOW, "c", "c")) << "all are taken";
  order(17);
}

TEST_F(WorkersTest, NobodyMayHaveAllPlaces) {
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(post(Priority::LOW, "a"));
  EXPECT_FALSE(post(Priority::LOW, "a"));
  order(16);
}

TEST_F(WorkersTest, DroppingTellsWhatWaitsAndLeavesWhatRuns) {
  post(Priority::LOW, "a");
  post(Priority::HIGH, "b");
  workers_.drop();
  EXPECT_EQ(order_, (std::vector<std::string>{"no b", "no a"}));
  EXPECT_FALSE(post(Priority::HIGH, "c"));
  EXPECT_FALSE(workers_.join(10ms)) << "the first task still runs";
  go_.release();
  EXPECT_TRUE(workers_.join(20s));
}

// Text that takes long (a form that is compiled) leaves the CPUs to those who compute.
TEST(GivingWay, OnlyTheThreadsOfTheWorkersAreNicer) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  const int nicer = std::min(before + 10, 19);
  const ManualClock clock;
  for (const bool gives_way : {false, true}) {
    std::promise<std::pair<int, int>> seen;
    Workers workers({.threads = 1, .gives_way = gives_way}, clock);
    workers.post(
        Priority::LOW, "",
        [&] {
          seen.set_value({::getpriority(PRIO_PROCESS, 0), ::sched_getscheduler(0)});
        },
        [] {});
    const auto [nice, policy] = seen.get_future().get();
    EXPECT_EQ(nice, gives_way ? nicer : before);
    EXPECT_EQ(policy == SCHED_BATCH, gives_way);
  }
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

TEST_F(WorkersTest, ATaskThatThrowsEndsAlone) {
  workers_.post(
      Priority::HIGH, "", [] { throw std::bad_alloc(); }, [] {});
  post(Priority::HIGH, "next");
  EXPECT_EQ(order(1), std::vector<std::string>{"next"});
}

}  // namespace
}  // namespace skein::http
