#include "server/store/store.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <vector>

#include "format/test_folder.h"
#include "server/store/database.h"
#include "server/store/sqlite/sqlite_database.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::integer_of;
using testing::open_state;
using testing::open_store;
using testing::sql;

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteDatabase> database(const std::string& name = "x.db") {
    auto db = SqliteDatabase::open(folder_ / name, 1000);
    SKEIN_CHECK(db.ok(), "{}", db.message());
    return std::move(*db);
  }
  std::string state() const { return folder_ / "state"; }

  testing::TestFolder folder_;
};

KeyRecord key_named(const std::string& name) {
  KeyRecord key;
  key.name = name;
  key.id = "id-" + name;
  return key;
}

Status add_key(Store& store, const std::string& name) {
  return await<KeyRecord>(
             [&](Done<KeyRecord> done) { store.keys().add(key_named(name), std::move(done)); })
      .status();
}

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  SKEIN_CHECK(::stat(path.c_str(), &info) == 0, "{} is not there", path);
  return info.st_mode & 0777;
}

TEST_F(StoreTest, StateIsPrivateAndDurable) {
  SKEIN_SQLITE_ALONE();
  const auto store = open_state(state());
  EXPECT_EQ(mode_of(state()), 0700U);
  EXPECT_EQ(mode_of(state() + "/files"), 0700U);
  EXPECT_EQ(mode_of(state() + "/skein.db"), 0600U);
  ASSERT_TRUE(add_key(*store, "a").ok());
  EXPECT_EQ(mode_of(state() + "/skein.db-wal"), 0600U);
  EXPECT_EQ(integer_of(*store, "PRAGMA synchronous"), 2);  // FULL
  EXPECT_EQ(integer_of(*store, "PRAGMA foreign_keys"), 1);
}

TEST_F(StoreTest, ADatabaseThatOthersCouldReadIsClosedToThem) {
  SKEIN_SQLITE_ALONE();
  std::filesystem::create_directories(state());
  std::ofstream(state() + "/skein.db").close();
  ASSERT_EQ(::chmod((state() + "/skein.db").c_str(), 0644), 0);
  open_state(state());
  EXPECT_EQ(mode_of(state() + "/skein.db"), 0600U);
}

TEST_F(StoreTest, OneServerPerFolderAndToolsBesideIt) {
  SKEIN_SQLITE_ALONE();
  const auto server = open_state(state());
  StoreOptions options;
  options.state_dir = state();
  const auto second = Store::open(options);
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.message(), HasSubstr("another server is running"));
  options.is_server = false;
  const auto tool = Store::open(options);
  ASSERT_TRUE(tool.ok());
  EXPECT_TRUE(add_key(**tool, "a").ok());
  EXPECT_EQ(integer_of(*server, "SELECT count(*) FROM keys"), 1);
}

TEST_F(StoreTest, ADamagedDatabaseIsRefusedAndLeftAlone) {
  SKEIN_SQLITE_ALONE();
  open_state(state());
  {
    std::fstream file(state() + "/skein.db", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 100);
    for (int i = 0; i < 4096 * 4; ++i) file.put('\x5a');
  }
  StoreOptions options;
  options.state_dir = state();
  EXPECT_EQ(Store::open(options).status().code(), Code::kDataLoss);
  folder_.write("state/skein.db", "this is not a database, but it is long enough to be one ....");
  EXPECT_EQ(Store::open(options).status().code(), Code::kDataLoss);
  EXPECT_TRUE(std::filesystem::exists(state() + "/skein.db"));
}

TEST_F(StoreTest, MigratesFromOlderVersionsAndRefusesNewerOnes) {
  SKEIN_SQLITE_ALONE();
  std::filesystem::create_directories(state());
  {
    const auto old = database("state/skein.db");
    ASSERT_TRUE(migrate(*old, 1).ok());
    ASSERT_EQ(*old->integer("PRAGMA user_version"), 1);
    ASSERT_TRUE(old->exec("INSERT INTO keys VALUES (1, 'i', 'kept', 1, '', 0, 0, 0, "
                          "zeroblob(16), zeroblob(32), 7, NULL, NULL)")
                    .ok());
    EXPECT_FALSE(old->integer("SELECT count(*) FROM batches").ok());
  }
  {
    const auto store = open_state(state());
    EXPECT_EQ(integer_of(*store, "PRAGMA user_version"), 8);
    EXPECT_EQ(integer_of(*store, "SELECT created_at FROM keys WHERE name = 'kept'"), 7);
    EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batches"), 0);
    ASSERT_TRUE(sql(*store, "PRAGMA user_version = 99").ok());
  }
  StoreOptions options;
  options.state_dir = state();
  const auto newer = Store::open(options);
  EXPECT_EQ(newer.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(newer.message(), HasSubstr("version 99"));
}

TEST_F(StoreTest, AFailedMigrationStepLeavesTheOldVersion) {
  SKEIN_SQLITE_ALONE();
  const auto db = database();
  ASSERT_TRUE(migrate(*db, 1).ok());
  ASSERT_TRUE(db->exec("CREATE TABLE batch_lines (x)").ok());  // in the way of step 2
  EXPECT_FALSE(migrate(*db).ok());
  EXPECT_EQ(*db->integer("PRAGMA user_version"), 1);
  EXPECT_FALSE(db->integer("SELECT count(*) FROM files").ok());  // made before the failure
}

TEST_F(StoreTest, WritesWithinTheWindowAreOneCommit) {
  SKEIN_SQLITE_ALONE();
  auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x INTEGER UNIQUE)").ok());
  const auto other = database();  // sees what is committed, nothing else
  std::atomic<int> commits{0};
  std::atomic<int> early{0};
  std::atomic<int> done{0};
  {
    StoreThread thread(std::move(db), {20 * kUsPerMs, 400 * kUsPerMs, nullptr,
                                       [&commits](Database&) { ++commits; }});
    for (int i = 0; i < 200; ++i) {
      thread.write(
          [i](Database& d) { return d.run("INSERT INTO t VALUES ($1)", {int64_t{i}}).status(); },
          [&, i](const Status& status) {
            EXPECT_TRUE(status.ok());
            if (*other->integer("SELECT count(*) FROM t WHERE x = $1", {int64_t{i}}) != 1) {
              ++early;
            }
            ++done;
          });
    }
  }
  EXPECT_EQ(done, 200);
  EXPECT_EQ(early, 0);
  EXPECT_LE(commits, 5);  // 1, but for a machine that stalls while posting
}

TEST_F(StoreTest, AWriteThatFailsTakesNoOtherWithIt) {
  SKEIN_SQLITE_ALONE();
  auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x INTEGER UNIQUE)").ok());
  std::vector<Code> codes(3);
  {
    StoreThread thread(std::move(db), {});
    const auto insert = [&](size_t slot, int64_t x) {
      thread.write(
          [x](Database& d) -> Status {
            SKEIN_TRY(d.run("INSERT INTO t VALUES ($1)", {x + 100}).status());
            return d.run("INSERT INTO t VALUES ($1)", {x}).status();
          },
          [&codes, slot](const Status& status) { codes[slot] = status.code(); });
    };
    insert(0, 1);
    insert(1, 1);  // breaks UNIQUE with its first row
    insert(2, 2);
  }
  EXPECT_EQ(codes[0], Code::kOk);
  EXPECT_EQ(codes[1], Code::kAlreadyExists);
  EXPECT_EQ(codes[2], Code::kOk);
  EXPECT_EQ(*database()->integer("SELECT count(*) FROM t"), 4);
}

TEST_F(StoreTest, AFullDatabaseRefusesTheBigWriteAndTakesTheSmallOnes) {
  SKEIN_SQLITE_ALONE();
  auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x BLOB); PRAGMA max_page_count = 20").ok());
  std::vector<Code> codes(4);
  {
    StoreThread thread(std::move(db), {});
    const auto insert = [&](size_t slot, int64_t bytes) {
      thread.write(
          [bytes](Database& d) {
            return d.run("INSERT INTO t VALUES (zeroblob($1))", {bytes}).status();
          },
          [&codes, slot](const Status& status) { codes[slot] = status.code(); });
    };
    insert(0, 10);
    insert(1, 1 << 20);
    insert(2, 10);
    EXPECT_TRUE(await_status([&](DoneStatus done) {
                  thread.write([](Database& d) { return d.exec("SELECT 1"); }, std::move(done));
                }).ok());
    ASSERT_TRUE(await_status([&](DoneStatus done) {
                  thread.read([](Database& d) { return d.exec("PRAGMA max_page_count = 100000"); },
                              std::move(done));
                }).ok());
    insert(3, 1 << 20);
  }
  EXPECT_EQ(codes, (std::vector{Code::kOk, Code::kResourceExhausted, Code::kOk, Code::kOk}));
  EXPECT_EQ(*database()->integer("SELECT count(*) FROM t"), 3);
}

TEST_F(StoreTest, ModelsOfAKeyHaveNoControlCharacters) {
  const auto store = open_state(state());
  KeyRecord key = key_named("a");
  for (const char* model : {"a\nb", "", "\x1f", "\x7f"}) {
    key.models = {"fine", model};
    const auto added =
        await<KeyRecord>([&](Done<KeyRecord> done) { store->keys().add(key, std::move(done)); });
    EXPECT_EQ(added.status().code(), Code::kInvalidArgument);
  }
}

TEST_F(StoreTest, AJobThatThrowsFailsAlone) {
  SKEIN_SQLITE_ALONE();
  auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x INTEGER)").ok());
  std::vector<Code> codes(5, Code::kUnavailable);
  {
    StoreThread thread(std::move(db), {});
    const auto note = [&codes](size_t slot) {
      return [&codes, slot](const Status& status) { codes[slot] = status.code(); };
    };
    const auto insert = [](Database& d) { return d.exec("INSERT INTO t VALUES (1)"); };
    thread.write(insert, note(0));
    thread.write(
        [&](Database& d) -> Status {
          SKEIN_TRY(insert(d));
          throw std::bad_alloc();
        },
        note(1));
    thread.write(insert, note(2));
    thread.read(
        [](Database&) -> Status { throw std::system_error(EAGAIN, std::generic_category()); },
        note(3));
    thread.write(insert, [](const Status&) { throw std::runtime_error("an answer that throws"); });
    thread.write(insert, note(4));
  }
  EXPECT_EQ(codes,
            (std::vector{Code::kOk, Code::kInternal, Code::kOk, Code::kInternal, Code::kOk}));
  EXPECT_EQ(*database()->integer("SELECT count(*) FROM t"), 4);
}

TEST_F(StoreTest, EveryCallIsAnsweredAlsoAtTheEnd) {
  std::atomic<int> answers{0};
  auto store = open_store({.state_dir = state()});
  for (int i = 0; i < 50; ++i) {
    store->keys().add(key_named(std::to_string(i)), [&](const auto& key) {
      EXPECT_TRUE(key.ok());
      ++answers;
    });
    store->keys().list([&](const auto& keys) { answers += keys.ok() ? 1 : 0; });
  }
  store.reset();
  EXPECT_EQ(answers, 100);
  EXPECT_EQ(integer_of(*open_state(state()), "SELECT count(*) FROM keys"), 50);
}

TEST_F(StoreTest, CallsFromManyThreads) {
  const auto store = open_store({.state_dir = state()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(add_key(*store, fmt::format("{}-{}", t, i)).ok());
        store->usage().add(std::to_string(t), {1, 10, 5, 3});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM keys"), 40);
}

TEST_F(StoreTest, NamesOfKeysAreCheckedAndUnique) {
  const auto store = open_state(state());
  ASSERT_TRUE(add_key(*store, "rag").ok());
  const Status again = add_key(*store, "rag");
  EXPECT_EQ(again.code(), Code::kAlreadyExists);
  EXPECT_THAT(again.message(), HasSubstr("'rag'"));
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\nb"),
                                 std::string(65, 'a'), std::string("0123456789abcdef")}) {
    EXPECT_EQ(add_key(*store, bad).code(), Code::kInvalidArgument) << bad;
  }
}

TEST_F(StoreTest, UsageAddsUpAcrossRuns) {
  for (int run = 1; run <= 2; ++run) {
    auto store = open_state(state());
    store->usage().add("k", {1, 100, 40, 7});
    store->usage().add("k", {1, 50, 0, 3});
    store->usage().add("", {1, 1, 0, 1});
    store.reset();
    store = open_state(state());
    const auto usage = await<std::vector<OwnerUsage>>(
        [&](Done<std::vector<OwnerUsage>> done) { store->keys().usage(std::move(done)); });
    ASSERT_EQ(usage->size(), 2U);
    const UsageCounts& counts = (*usage)[1].counts;
    const auto times = static_cast<uint64_t>(run);
    EXPECT_EQ(counts.requests, 2 * times);
    EXPECT_EQ(counts.prompt_tokens, 150 * times);
    EXPECT_EQ(counts.cached_tokens, 40 * times);
    EXPECT_EQ(counts.output_tokens, 10 * times);
  }
}

TEST_F(StoreTest, UsageWaitsForAFullDisk) {
  SKEIN_SQLITE_ALONE();
  auto store = open_state(state());
  ASSERT_TRUE(sql(*store, "PRAGMA query_only = ON").ok());
  store->usage().add("k", {1, 100, 40, 7});
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // a flush or two fail
  ASSERT_TRUE(sql(*store, "PRAGMA query_only = OFF").ok());
  store.reset();
  EXPECT_EQ(integer_of(*open_state(state()), "SELECT prompt_tokens FROM usage"), 100);
}

TEST_F(StoreTest, TwoProcessesDisturbNeitherTheOtherNorTheirOwnWrites) {
  StoreOptions options;
  options.state_dir = state();
  options.is_server = false;
  const auto one = open_store(options);
  const auto two = open_store(options);
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(add_key(*two, fmt::format("two{}", i)).ok());
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(add_key(*one, fmt::format("one{}", i)).ok());
  other.join();
  EXPECT_EQ(integer_of(*one, "SELECT count(*) FROM keys"), 40);
}

TEST_F(StoreTest, AFolderCanBeMadeByManyAtOnce) {
  StoreOptions options;
  options.state_dir = state();
  options.is_server = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&options] {
      const auto store = Store::open(testing::on_driver(options));
      EXPECT_TRUE(store.ok()) << store.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open_store(options)->salt_key(), open_store(options)->salt_key());
}

TEST_F(StoreTest, ASharedStoreIsBuiltInOrRefused) {
  StoreOptions options;
  options.url = "mysql://db/skein";
  options.node = "n1";
  const auto refused = Store::open(options);
  EXPECT_EQ(refused.status().code(),
            has_shared_stores() ? Code::kInvalidArgument : Code::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr(has_shared_stores() ? "postgresql://" : "FLEET=1"));
  EXPECT_FALSE(store_access(options.url).ok());
}

}  // namespace
}  // namespace skein
