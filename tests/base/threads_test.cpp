#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <numeric>
#include <sched.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/resources.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace

// ThreadSanitizer has operators of its own; nothing is counted there.
#ifndef __SANITIZE_THREAD__
// Not inlined: GCC takes an inlined pair for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace skein {
namespace {

TEST(Mailbox, RefusesWhenFullOrClosed) {
  Mailbox<int> mailbox(2);
  EXPECT_TRUE(mailbox.push(1).ok());
  EXPECT_TRUE(mailbox.push(2).ok());
  const Status full = mailbox.push(3);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_EQ(full.message(), "the mailbox is full: it holds 2 messages");
  std::vector<int> messages{9};
  mailbox.drain(messages);
  EXPECT_EQ(messages, (std::vector<int>{1, 2}));
  EXPECT_TRUE(mailbox.push(4).ok());
  mailbox.close();
  EXPECT_EQ(mailbox.push(5).code(), Code::kUnavailable);
  mailbox.wait();
  mailbox.drain(messages);
  EXPECT_EQ(messages, std::vector<int>{4});
  mailbox.drain(messages);
  EXPECT_TRUE(messages.empty());
}

TEST(Mailbox, KeepsEverySendersOrder) {
  constexpr int kSenders = 4;
  constexpr int kEach = 5000;
  Mailbox<std::pair<int, int>> mailbox(64);
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&mailbox, s] {
      for (int i = 0; i < kEach; ++i) {
        while (!mailbox.push({s, i}).ok()) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kSenders, 0);
  std::vector<std::pair<int, int>> messages;
  for (int received = 0; received < kSenders * kEach;) {
    mailbox.wait();
    mailbox.drain(messages);
    EXPECT_LE(messages.size(), 64u);
    for (const auto& [sender, i] : messages) EXPECT_EQ(i, next[static_cast<size_t>(sender)]++);
    received += static_cast<int>(messages.size());
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(next, std::vector<int>(kSenders, kEach));
}

TEST(Mailbox, WaitEndsByWakeCloseAndTimeout) {
  Mailbox<int> mailbox(1);
  mailbox.wake();
  mailbox.wait();      // the wake came first and is not lost
  mailbox.wait(1000);  // nothing comes
  std::thread waker([&mailbox] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mailbox.wake();
  });
  mailbox.wait();
  waker.join();
  std::thread closer([&mailbox] { mailbox.close(); });
  mailbox.wait();
  closer.join();
  EXPECT_TRUE(mailbox.closed());
}

TEST(Mailbox, DrainAllocatesNothing) {
  Mailbox<int> mailbox(8);
  std::vector<int> messages;
  mailbox.drain(messages);
  const size_t before = allocations.load();
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 8; ++i) (void)mailbox.push(i);
    mailbox.drain(messages);
  }
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(messages.size(), 8u);
}

TEST(ComputePool, DoesEveryTaskOnce) {
  for (const size_t threads : {1u, 2u, 5u}) {
    ComputePool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> done(1000);
    std::vector<int> expected(1000);
    for (int round = 0; round < 200; ++round) {
      const auto tasks = static_cast<size_t>(round * 37 % 1001);
      pool.run(tasks, [&](size_t task) { ++done[task]; });  // plain ints: a task races with none
      for (size_t i = 0; i < tasks; ++i) ++expected[i];
      ASSERT_EQ(done, expected) << threads << " threads, " << tasks << " tasks";
    }
  }
}

TEST(ComputePool, CallersShareIt) {
  ComputePool pool(3);
  uint64_t total = 0;  // plain: only one run is in progress at a time
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool, &total] {
      for (int round = 0; round < 200; ++round) {
        std::vector<uint64_t> out(16);
        pool.run(out.size(), [&](size_t task) { out[task] = task; });
        pool.run(1, [&](size_t) { total += std::accumulate(out.begin(), out.end(), uint64_t{0}); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4u * 200 * 120);
}

TEST(ComputePool, CallersTakeTurnsInOrder) {
  ComputePool pool(2);
  std::vector<int> order;
  std::atomic<bool> running{false};
  std::atomic<bool> release{false};
  std::thread first([&] {
    pool.run(1, [&](size_t) {
      running = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!running) std::this_thread::yield();
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&pool, &order, i] { pool.run(1, [&](size_t) { order.push_back(i); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that it queues up
  }
  release = true;
  first.join();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ComputePool, AllocatesNothing) {
  ComputePool pool(3);
  std::vector<int> out(64);
  const auto run = [&] { pool.run(out.size(), [&](size_t task) { out[task] += 1; }); };
  run();
  const size_t before = allocations.load();
  for (int round = 0; round < 100; ++round) run();
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(out, std::vector<int>(64, 101));
}

TEST(ComputePoolDeathTest, NestingIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ComputePool pool(2);
        pool.run(2, [&](size_t) { pool.run(3, [](size_t) {}); });
      },
      "a task of the compute pool runs 3 more");
}

TEST(Clock, MovesForward) {
  const SystemClock real;
  const TimeUs before = real.now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_GE(real.now() - before, 2 * kUsPerMs);
  ManualClock manual(5);
  EXPECT_EQ(manual.now(), 5);
  manual.advance(kUsPerSecond);
  EXPECT_EQ(manual.now(), 5 + kUsPerSecond);
}

TEST(Log, OneLinePerMessageAtOrAboveTheLevel) {
  ::testing::internal::CaptureStderr();
  log_debug("hidden {}", 1);
  log_info("first {}", 2);
  log_warning("forged\n2026 error line\x1b[0m");
  set_log_level(LogLevel::kError);
  log_warning("hidden");
  log_error("last");
  set_log_level(LogLevel::kOff);
  log_error("hidden");
  set_log_level(LogLevel::kInfo);
  const std::string out = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3) << out;
  EXPECT_NE(out.find("Z info first 2\n"), std::string::npos) << out;
  EXPECT_NE(out.find("Z warning forged\\x0a2026 error line\\x1b[0m\n"), std::string::npos) << out;
  EXPECT_NE(out.find("Z error last\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("hidden"), std::string::npos) << out;
}

TEST(Log, ThreadsDoNotMixLines) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log_info("{}", std::string(40, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string out = ::testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t begin = 0; begin < out.size(); ++lines) {
    const size_t end = out.find('\n', begin);
    ASSERT_GT(end - begin, 40u);
    const std::string tail = out.substr(end - 40, 40);
    EXPECT_EQ(tail, std::string(40, tail[0]));
    begin = end + 1;
  }
  EXPECT_EQ(lines, 400u);
}

// A thread that gives way has long work done on another one; others do it themselves.
TEST(RunApart, OnAThreadOfItsOwnWhereTheCallerGivesWay) {
  const auto where = [] {
    std::thread::id id;
    run_apart([&] { id = std::this_thread::get_id(); });
    return id;
  };
  EXPECT_EQ(where(), std::this_thread::get_id());
  std::thread([&] {
    give_way();
    EXPECT_NE(where(), std::this_thread::get_id());
    EXPECT_THROW(run_apart([] { throw std::bad_alloc(); }), std::bad_alloc);
    int policy = 0;
    run_apart([&] { policy = ::sched_getscheduler(0); });
    EXPECT_EQ(policy, ::sched_getscheduler(0));
  }).join();
}

}  // namespace
}  // namespace skein
