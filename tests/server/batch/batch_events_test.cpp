// What wakes the runner of batches, and that nothing else does.
#include <chrono>
#include <dirent.h>
#include <dlfcn.h>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <thread>

#include "server/live_server.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

std::atomic<int> batch_statements{
    0};  // that SQLite was asked to step, but for the look at the keys

}  // namespace
}  // namespace skein

// Stands before SQLite's own.
extern "C" int sqlite3_step(sqlite3_stmt* statement) {
  static const auto real =
      reinterpret_cast<int (*)(sqlite3_stmt*)>(::dlsym(RTLD_NEXT, "sqlite3_step"));
  const char* sql = sqlite3_sql(statement);  // SQLite's own statements have none
  if (sql == nullptr || std::string_view(sql) != "PRAGMA data_version") ++skein::batch_statements;
  return real(statement);
}

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::create_batch_of;
using testing::eventually;
using testing::finish;
using testing::input_of;
using testing::LiveServer;
using testing::upload;

class BatchEventsTest : public ::testing::Test {
 protected:
  BatchEventsTest()
      : store_(testing::open_state(folder_ / "state")),
        runner_(std::make_unique<BatchRunner>(*store_, clock_, testing::no_models)) {
    settle();
  }

  std::vector<BatchLine> next(size_t n) {
    auto lines = runner_->next_lines(n);
    SKEIN_CHECK(lines.ok(), "{}", lines.message());
    return std::move(*lines);
  }
  // As its thread does, until it would sleep; a wait that hangs here is a wake-up that got lost.
  void settle() {
    do {
      next(0);
    } while (runner_->due_us() <= clock_.now());
  }
  std::string start(int lines, const std::string& owner = "a") {
    const std::string id =
        create_batch_of(*store_, owner, upload(*store_, owner, input_of(lines))->id)->id;
    while (testing::batch_of(*store_, id, {owner})->status == BatchStatus::kValidating) next(0);
    return id;
  }
  // Whether wait() comes back because of `event`, though nothing is due.
  template <class Event>
  bool wakes(const Event& event) {
    for (auto quiet = false; !quiet;) {  // what happened before is over
      settle();
      auto early = std::async(std::launch::async, [this] { return runner_->wait(); });
      quiet = early.wait_for(50ms) == std::future_status::timeout;
      if (!quiet) continue;
      event();
      const bool woken = early.wait_for(10s) == std::future_status::ready;
      runner_->wake();
      return woken;
    }
    return false;
  }

  testing::TestFolder folder_;
  ManualClock clock_{kUsPerSecond};
  std::unique_ptr<Store> store_;
  std::unique_ptr<BatchRunner> runner_;
};

TEST_F(BatchEventsTest, NothingIsDueWithoutABatch) {
  EXPECT_EQ(runner_->due_us(), kNever);
  start(2);
  for (const BatchLine& line : next(2)) ASSERT_TRUE(finish(*runner_, line, 200, "{}").ok());
  EXPECT_NE(runner_->due_us(), kNever) << "its lifetime is counted";
  settle();
  EXPECT_EQ(runner_->due_us(), kNever);
}

TEST_F(BatchEventsTest, WhatIsWaitedForIsDue) {
  const TimeUs now = clock_.now();
  start(2);
  next(0);
  EXPECT_EQ(runner_->due_us(), now + 30 * kUsPerSecond) << "the next count of its lifetime";
  const auto lines = next(2);
  runner_->return_line(lines[0].id, 5 * kUsPerSecond);
  next(2);
  EXPECT_EQ(runner_->due_us(), now + 5 * kUsPerSecond);
  ASSERT_TRUE(testing::sql(*store_, "PRAGMA query_only = ON").ok());
  EXPECT_FALSE(finish(*runner_, lines[1], 200, "{}").ok());
  next(2);
  EXPECT_EQ(runner_->due_us(), now + 2 * kUsPerSecond) << "a retry";
  ASSERT_TRUE(testing::sql(*store_, "PRAGMA query_only = OFF").ok());
}

TEST_F(BatchEventsTest, TheEndOfALifetimeIsDue) {
  const auto file = upload(*store_, "a", input_of(1));
  NewBatch batch{"a", "/v1/chat/completions", file->id, "{}"};
  batch.lifetime_s = 10;
  ASSERT_TRUE(await<BatchRecord>([&](Done<BatchRecord> done) {
                store_->batches().create(batch, std::move(done));
              }).ok());
  next(0);
  EXPECT_EQ(runner_->due_us(), clock_.now() + 10 * kUsPerSecond);
}

TEST_F(BatchEventsTest, WhatHappensWakesTheRunner) {
  const std::string input = upload(*store_, "a", input_of(3))->id;
  std::string id;
  EXPECT_TRUE(wakes([&] { id = create_batch_of(*store_, "a", input)->id; })) << "a new batch";
  // The file is checked on another thread.
  EXPECT_TRUE(eventually([&] {
    settle();
    return testing::batch_of(*store_, id, {"a"})->status == BatchStatus::kInProgress;
  }));
  const auto lines = next(3);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(wakes([&] { (void)finish(*runner_, lines[0], 200, "{}"); })) << "a line ended";
  EXPECT_TRUE(wakes([&] { runner_->return_line(lines[1].id, kUsPerSecond); })) << "a line returned";
  EXPECT_TRUE(wakes([&] { (void)testing::cancel(*store_, id, {"a"}); })) << "a cancel";
}

TEST_F(BatchEventsTest, WhatAnotherProcessDoesWakesTheRunner) {
  const auto tool = [this] {  // as `skein keys revoke` beside the server
    return testing::open_store({.state_dir = folder_ / "state", .is_server = false});
  };
  KeyRecord key;
  key.id = "0123456789abcdef";
  key.name = "k";
  ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                store_->keys().add(key, std::move(done));
              }).ok());
  const std::string id = start(2, key.id);
  next(1);
  EXPECT_TRUE(wakes([&] {
    (void)await<KeyRecord>(
        [&](Done<KeyRecord> done) { tool()->keys().revoke("k", std::move(done)); });
  }));
  settle();
  EXPECT_EQ(testing::batch_of(*store_, id, {key.id})->status, BatchStatus::kCancelled);
}

// How often the thread of that name has gone to sleep; -1 where there is none.
int64_t sleeps_of(const std::string& name) {
  int64_t sleeps = -1;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(tasks)) {
    const std::string folder = fmt::format("/proc/self/task/{}/", task->d_name);
    std::string comm;
    if (!(std::ifstream(folder + "comm") >> comm) || comm != name) continue;
    std::ifstream status(folder + "status");
    for (std::string word; status >> word;) {
      if (word == "voluntary_ctxt_switches:") status >> sleeps;
    }
  }
  ::closedir(tasks);
  return sleeps;
}

TEST(BatchIdle, AServerWithoutWorkNeitherWakesUpNorAsksTheDatabase) {
  LiveServer live;
  live.start();
  // It has run a batch, so that whatever starts late has started.
  const std::string line =
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"max_tokens":2,)"
      R"("messages":[{"role":"user","content":"x"}]}})";
  const auto file = live.upload(line);
  const auto made = live.post(
      "/v1/batches", {{"input_file_id", file.json["id"]}, {"endpoint", "/v1/chat/completions"}});
  EXPECT_EQ(live.wait_for_batch(made.json["id"])["status"], "completed");
  std::this_thread::sleep_for(1s);  // its lines are dropped, its usage is written
  const int64_t sleeps = sleeps_of("batches");
  const int statements = batch_statements;
  ASSERT_GT(sleeps, 0);
  ASSERT_GT(statements, 0);
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(sleeps_of("batches"), sleeps);
  EXPECT_EQ(batch_statements, statements);
}

}  // namespace
}  // namespace skein
