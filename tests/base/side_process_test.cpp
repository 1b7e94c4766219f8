// Work that crashes, loops or eats memory in a process of its own.
#include "base/side_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <new>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/check.h"

namespace skein {
namespace {

using testing::HasSubstr;

Status misbehave(const std::string& how) {
  if (how == "fine") return {};
  if (how == "refused") return out_of_range("refused: 3 of 2");
  if (how == "segfault") std::raise(SIGSEGV);
  if (how == "check") SKEIN_CHECK(how.empty(), "planted by a test");
  if (how == "loop") {
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  if (how == "memory") {
    std::vector<std::unique_ptr<std::string>> kept;
    while (true) kept.push_back(std::make_unique<std::string>(1 << 20, 'x'));
  }
  if (how == "throw") throw std::runtime_error("thrown by a test");
  if (how == "exit") std::_Exit(0);
  if (how == "long") return data_loss("{}", std::string(100'000, 'm'));
  if (how == "write") {
    std::signal(SIGXFSZ, SIG_IGN);
    const int fd = ::open("/tmp", O_TMPFILE | O_RDWR, 0600);
    return ::write(fd, "x", 1) == 1 ? ok_status() : invalid_argument("errno {}", errno);
  }
  return internal_error("unknown: {}", how);
}

class SideProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    auto side = SideProcess::start({.name = "skein-test",
                                    .prepare = {},
                                    .work = misbehave,
                                    .limits = {.memory_bytes = 256 << 20, .cpu_seconds = 1}});
    ASSERT_TRUE(side.ok()) << side.message();
    side_ = std::move(*side);
  }
  void expect(const std::string& how, Code code, const std::string& message) {
    const Status status = side_->run(how);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(message));
  }

  std::unique_ptr<SideProcess> side_;
};

TEST_F(SideProcessTest, GivesTheStatusOfTheWork) {
  EXPECT_TRUE(side_->run("fine").ok());
  expect("refused", Code::kOutOfRange, "refused: 3 of 2");
  expect("throw", Code::kInternal, "throw: thrown by a test");
}

TEST_F(SideProcessTest, ACrashIsAStatusThatNamesTheSignal) {
  expect("segfault", Code::kDataLoss,
         "segfault: the process that reads it was ended by signal 11 (Segmentation fault)");
  expect("check", Code::kDataLoss, "ended by signal 6 (Aborted)");
  expect("exit", Code::kDataLoss, "ended with status 0");
  EXPECT_TRUE(side_->run("fine").ok()) << "the next piece of work is not affected";
}

TEST_F(SideProcessTest, TimeIsBounded) {
  expect("loop", Code::kDataLoss, "loop: is not read within 1 s of computing");
  EXPECT_TRUE(side_->run("fine").ok());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow is no memory
TEST_F(SideProcessTest, MemoryIsBounded) {
  expect("memory", Code::kResourceExhausted, "memory: needs more than 256 MiB");
  EXPECT_TRUE(side_->run("fine").ok());
}
#endif

TEST_F(SideProcessTest, MessagesAreBounded) {
  EXPECT_EQ(side_->run("long").message().size(), 8191u);
}

TEST_F(SideProcessTest, NothingIsWritten) {
  expect("write", Code::kInvalidArgument, fmt::format("errno {}", EFBIG));
}

TEST_F(SideProcessTest, ThreadsTakeTurns) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int turn = 0; turn < 5; ++turn) {
        EXPECT_TRUE(side_->run("fine").ok());
        expect("refused", Code::kOutOfRange, "refused: 3 of 2");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SideProcessStartTest, FailsWhereItCannotBePrepared) {
  const auto side = SideProcess::start({.name = "skein-test",
                                        .prepare = [] { return unavailable("no rights to drop"); },
                                        .work = misbehave});
  ASSERT_FALSE(side.ok());
  EXPECT_THAT(side.message(), HasSubstr("no rights to drop"));
}

// Their parent is the process that stands by.
Status end_parent(const std::string& how) {
  if (how == "kill") ::kill(::getppid(), SIGKILL);
  if (how == "parent") return out_of_range("{}", ::getppid());
  return ok_status();
}

TEST(SideProcessStartTest, TheProcessThatStandsByIsStartedAnewSoManyTimes) {
  const auto side = SideProcess::start(
      {.name = "skein-test", .prepare = {}, .work = end_parent, .max_restarts = 2});
  ASSERT_TRUE(side.ok());
  for (int turn = 0; turn < 2; ++turn) {
    const Status status = (*side)->run("kill");
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("kill: the process that reads such files died"));
    EXPECT_TRUE((*side)->run("fine").ok());
  }
  for (const char* how : {"kill", "fine"}) {
    const Status status = (*side)->run(how);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("is gone; start the server again"));
  }
}

TEST(SideProcessStartTest, ADeathWithoutWorkCostsNoWork) {
  const auto side = SideProcess::start({.name = "skein-test", .prepare = {}, .work = end_parent});
  ASSERT_TRUE(side.ok());
  const std::string first = (*side)->run("parent").message();
  ASSERT_EQ(::kill(std::stoi(first), SIGKILL), 0);
  while (::kill(std::stoi(first), 0) == 0) ::usleep(1000);  // until it was reaped
  ::usleep(100'000);                                        // and told
  const Status second = (*side)->run("parent");
  EXPECT_EQ(second.code(), Code::kOutOfRange) << second.message();
  EXPECT_NE(second.message(), first);
}

}  // namespace
}  // namespace skein
