// State folders of earlier versions, and copies of state folders.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/file.h>
#include <thread>

#include "format/test_folder.h"
#include "server/store/backup.h"
#include "server/store/database.h"
#include "server/store/sqlite/sqlite_database.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::content_of;
using ::testing::HasSubstr;
using testing::input_of;
using testing::integer_of;
using testing::open_state;
using testing::upload;

constexpr int kVersion = 8;
constexpr const char* kOwner = "0123456789abcdef";
constexpr const char* kFile = "file-000102030405060708090a0b";
constexpr const char* kBatch = "batch_00112233445566778899aabbccddeeff";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  SKEIN_CHECK(file.good(), "{} is not there", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class MigrationTest : public ::testing::Test {
 protected:
  std::string state() const { return folder_ / "state"; }
  // The folder that version 0.1 left.
  void write_old_state() const {
    const std::string fixtures = SKEIN_SOURCE_DIR "/tests/server/store/";
    folder_.write(std::string("state/files/") + kFile, text_of(fixtures + "state_v2.jsonl"));
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    SKEIN_CHECK(db.ok(), "{}", db.message());
    const Status status = (*db)->exec(text_of(fixtures + "state_v2.sql"));
    SKEIN_CHECK(status.ok(), "{}", status.message());
  }
  static void run_all_lines(Store& store) {
    const SystemClock clock;
    BatchRunner runner(store, clock, testing::no_models);
    for (int i = 0; i < 100; ++i) {
      const auto work = runner.next_lines(4);
      SKEIN_CHECK(work.ok(), "{}", work.message());
      for (const BatchLine& line : *work) {
        const Status status = testing::finish(runner, line, 200, R"({"new": true})");
        SKEIN_CHECK(status.ok(), "{}", status.message());
      }
    }
  }

  testing::TestFolder folder_;
};

TEST_F(MigrationTest, AStateFolderOfVersion01GoesOn) {
  write_old_state();
  const auto store = open_state(state());
  EXPECT_EQ(integer_of(*store, "PRAGMA user_version"), kVersion);
  const auto keys = await<std::vector<KeyRecord>>(
      [&](Done<std::vector<KeyRecord>> done) { store->keys().list(std::move(done)); });
  ASSERT_EQ(keys->size(), 1U);
  EXPECT_EQ(keys->front().name, "team");
  EXPECT_EQ(keys->front().models, std::vector<std::string>{"tiny"});
  EXPECT_EQ(keys->front().tokens_per_minute, 1000U);
  EXPECT_EQ(integer_of(*store, "SELECT output_tokens FROM usage"), 77);
  EXPECT_EQ(store->file_budget().use_of(kOwner).files, 1U);
  EXPECT_EQ(content_of(*store, kFile, {kOwner})->size(), store->file_budget().use_of(kOwner).bytes);
  EXPECT_EQ(batch_of(*store, kBatch, {kOwner})->completed_lines, 1U);
  run_all_lines(*store);
  const auto batch = batch_of(*store, kBatch, {kOwner});
  ASSERT_EQ(batch->status, BatchStatus::kCompleted);
  EXPECT_EQ(batch->completed_lines, 4U);
  const std::string output = *content_of(*store, batch->output_file, {kOwner});
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 4);
  EXPECT_THAT(output, HasSubstr("\"request_id\": \"req-2\", \"body\": {\"kept\": true}"));
}

// Version 3 had marks where there are claims now, and no epochs.
TEST_F(MigrationTest, WhatRanWhenAServerOfVersion3DiedIsStillKnown) {
  write_old_state();
  {
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    ASSERT_TRUE(migrate(**db, 3).ok());
    ASSERT_TRUE((*db)
                    ->exec("UPDATE batch_lines SET running = 2 WHERE line = 3;"
                           "UPDATE batch_lines SET running = 1 WHERE line = 4")
                    .ok());
  }
  const auto store = open_state(state());
  EXPECT_EQ(integer_of(*store, "PRAGMA user_version"), kVersion);
  EXPECT_GT(store->epoch(), 0);
  const auto deaths = [&](int line) {
    return std::pair(
        integer_of(*store, fmt::format("SELECT deaths FROM batch_lines WHERE line = {}", line)),
        integer_of(*store,
                   fmt::format("SELECT alone_deaths FROM batch_lines WHERE line = {}", line)));
  };
  EXPECT_EQ(deaths(1), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(deaths(3), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(deaths(4), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batch_lines WHERE epoch IS NOT NULL"), 0);
  run_all_lines(*store);
  EXPECT_EQ(batch_of(*store, kBatch, {kOwner})->completed_lines, 4U);
}

// Version 5 kept no responses.
TEST_F(MigrationTest, AFolderOfVersion5KeepsResponsesFromNowOn) {
  write_old_state();
  {
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    ASSERT_TRUE(migrate(**db, 5).ok());
    EXPECT_FALSE((*db)->integer("SELECT count(*) FROM responses").ok());
  }
  const auto store = open_state(state());
  EXPECT_EQ(integer_of(*store, "PRAGMA user_version"), kVersion);
  EXPECT_EQ(batch_of(*store, kBatch, {kOwner})->completed_lines, 1U);
  const uint64_t files = store->file_budget().use_of(kOwner).bytes;
  const Status added = await_status([&](DoneStatus done) {
    store->responses().add({"resp_1", kOwner, "", "[]", "[]", "{", "}"}, std::move(done));
  });
  EXPECT_TRUE(added.ok()) << added.message();
  EXPECT_EQ(store->file_budget().use_of(kOwner).bytes, files + 6);
}

// Version 7 had the headers of an answer behind its body.
TEST_F(MigrationTest, HeadersOfVersion7StayWhereTheyAreRead) {
  write_old_state();
  {
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    ASSERT_TRUE(migrate(**db, 7).ok());
    ASSERT_TRUE((*db)
                    ->exec("UPDATE batch_lines SET body = body || ', \"headers\": {\"a\": \"b\"}' "
                           "WHERE status_code IS NOT NULL")
                    .ok());
  }
  const auto store = open_state(state());
  EXPECT_EQ(integer_of(*store, "PRAGMA user_version"), kVersion);
  run_all_lines(*store);
  const std::string output =
      *content_of(*store, batch_of(*store, kBatch, {kOwner})->output_file, {kOwner});
  EXPECT_THAT(output,
              HasSubstr(R"("body": {"kept": true}, "headers": {"a": "b"}}, "error": null)"));
  EXPECT_THAT(output, HasSubstr(R"("body": {"new": true}}, "error": null)"));
}

TEST_F(MigrationTest, AToolLeavesTheFolderOfAnOlderServerThatRunsAlone) {
  write_old_state();
  const StoreOptions tool{.state_dir = state(), .is_server = false};
  {
    const OwnedFd server(::open((state() + "/server.lock").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(::flock(server.get(), LOCK_EX | LOCK_NB), 0);
    const auto refused = Store::open(tool);
    EXPECT_EQ(refused.status().code(), Code::kUnavailable);
    EXPECT_THAT(refused.status().message(), HasSubstr("restart the server"));
  }
  {
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    EXPECT_EQ(*(*db)->integer((*db)->dialect().version), 2);
  }
  EXPECT_TRUE(Store::open(tool).ok());
}

TEST_F(MigrationTest, AFolderOfANewerVersionIsRefusedByName) {
  write_old_state();
  {
    const auto db = SqliteDatabase::open(state() + "/skein.db", 1000);
    ASSERT_TRUE((*db)->exec("PRAGMA user_version = 77").ok());
  }
  const auto store = Store::open({.state_dir = state()});
  EXPECT_EQ(store.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(store.message(), HasSubstr("state folder " + state()));
  EXPECT_THAT(store.message(), HasSubstr("version 77"));
  EXPECT_THAT(store.message(), HasSubstr(fmt::format("up to {}", kVersion)));
  const auto copy = back_up(state(), folder_ / "copy");
  EXPECT_EQ(copy.status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy.partial"));
}

TEST_F(MigrationTest, ABackupIsWholeWhileTheServerWorks) {
  const auto store = open_state(state());
  std::atomic<bool> stop{false};
  std::thread server([&] {  // uploads and deletes without end
    for (std::vector<std::string> ids; !stop;) {
      ids.push_back(upload(*store, "a", input_of(50))->id);
      if (ids.size() < 4) continue;
      const std::string id = ids.front();
      ids.erase(ids.begin());
      (void)await<FileRecord>(
          [&](Done<FileRecord> done) { store->files().remove(id, {"a"}, std::move(done)); });
    }
  });
  for (int i = 0; i < 5; ++i) {
    const std::string to = folder_ / fmt::format("copy{}", i);
    const auto made = back_up(state(), to);
    EXPECT_TRUE(made.ok()) << made.message();
    if (!made.ok()) break;
    EXPECT_FALSE(std::filesystem::exists(to + "/ballast"));
    const auto copy = open_state(to);
    const auto rows = await<Page<FileRecord>>(
        [&](Done<Page<FileRecord>> done) { copy->files().list({"a"}, {}, std::move(done)); });
    for (const FileRecord& file : rows->items) {
      EXPECT_EQ(*content_of(*copy, file.id, {"a"}), input_of(50));
    }
    EXPECT_EQ(copy->salt_key(), store->salt_key());
  }
  stop = true;
  server.join();
  EXPECT_EQ(back_up(state(), folder_ / "copy0").status().code(), Code::kAlreadyExists);
  EXPECT_EQ(back_up(folder_ / "nothing", folder_ / "x").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace skein
