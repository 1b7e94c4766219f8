#include "server/store/store_thread.h"

#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include <utility>

#include "format/test_folder.h"
#include "server/store/sqlite/sqlite_database.h"

namespace skein {
namespace {

TEST(StoreThread, WhileAJobStandsStillOthersAreRefused) {
  const testing::TestFolder folder;
  auto db = SqliteDatabase::open(folder / "t.db", 1000);
  ASSERT_TRUE(db.ok()) << db.message();
  StoreThread::Options options;
  options.patience_us = 50 * kUsPerMs;
  StoreThread thread(std::move(*db), options);
  std::promise<void> go_on;
  const std::future<void> told = go_on.get_future();
  thread.read(
      [&told](Database&) -> Status {
        told.wait();
        return {};
      },
      [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); });
  while (thread.stuck_us() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto one = [](Database& d) { return d.integer("SELECT 1"); };
  EXPECT_EQ(thread.read_and_wait<int64_t>(one).status().code(), Code::kUnavailable);
  const auto never = [](const Done<int64_t>&) {};
  EXPECT_EQ(await_for<int64_t>(std::chrono::milliseconds(5), never).status().code(),
            Code::kUnavailable);
  go_on.set_value();
  while (thread.stuck_us() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(*thread.read_and_wait<int64_t>(one), 1);
}

}  // namespace
}  // namespace skein
