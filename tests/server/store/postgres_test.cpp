// What is PostgreSQL's own: texts, contents, and a connection that breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/migrate_state.h"
#include "server/store/postgres/postgres_database.h"
#include "server/store/postgres/postgres_text.h"
#include "server/store/postgres_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::create_batch_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::integer_of;
using testing::upload;

TEST(PostgresTextTest, AnyBytesComeBackAndEqualIsEqual) {
  const std::vector<std::string> texts = {"",
                                          "plain",
                                          "\xc3\xa4\xe2\x82\xac",
                                          std::string("a\0b", 3),
                                          "\x01",
                                          "\x01"
                                          "00",
                                          "\xff",
                                          "\xc3",
                                          "a\xed\xa0\x80z",
                                          std::string(3, '\0')};
  for (const std::string& text : texts) {
    const std::string there = to_postgres_text(text);
    EXPECT_EQ(from_postgres_text(there), text);
    EXPECT_EQ(there.find('\0'), std::string::npos);
    for (const std::string& other : texts)
      EXPECT_EQ(there == to_postgres_text(other), text == other);
  }
  EXPECT_EQ(to_postgres_text("\xc3\xa4"), "\xc3\xa4");
}

TEST_F(PostgresTest, UrlsArePostgresWithoutAPassword) {
  EXPECT_EQ(PostgresDatabase::open("mysql://x").status().code(), Code::kInvalidArgument);
  const auto refused = PostgresDatabase::open("postgresql://me:secret@localhost/x");
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("PGPASSFILE"));
  for (const char* url :
       {"postgresql://me:secret@localhost/x", "postgresql://me:secret@localhost:5:6/x",
        "postgresql://me:%zzsecret@localhost/x", "postgresql://me:secret@[::1/x",
        "postgresql://me@localhost/x?passwordsecret", "postgresql://me@localhost/x?secret=1",
        "postgresql://me@localhost/x?sslpassword=secret", "postgresql://me:secret/1@localhost/x"}) {
    const auto bad = PostgresDatabase::open(url);
    EXPECT_EQ(bad.status().code(), Code::kInvalidArgument) << url;
    EXPECT_EQ(bad.message().find("secret"), std::string::npos) << bad.message();
  }
  EXPECT_EQ(PostgresDatabase::open("postgresql:///x?host=/nowhere").status().code(),
            Code::kUnavailable);
  const auto access = store_access("postgresql://a:5433,b/x?sslrootcert=/etc/ca.pem");
  EXPECT_THAT(access->ports, ElementsAre(5433, 5432));
  EXPECT_THAT(access->files, ElementsAre("/etc/ca.pem"));
}

TEST_F(PostgresTest, WhatClientsWriteIsStoredAsItIs) {
  const auto store = node("n1");
  const std::string name("odd\0\xff\x01name", 10);
  auto writer = store->files().create("a");
  ASSERT_TRUE((*writer)->append("text").ok());
  const auto file = await<FileRecord>([&](Done<FileRecord> done) {
    store->files().commit(std::move(*writer), {"a", "batch", name}, std::move(done));
  });
  ASSERT_TRUE(file.ok()) << file.message();
  const auto read = await<FileRecord>(
      [&](Done<FileRecord> done) { store->files().get(file->id, {"a"}, std::move(done)); });
  EXPECT_EQ(read->name, name);
}

TEST_F(PostgresTest, FilesAreReadableOnEveryNodeAndInPieces) {
  const auto one = node("n1"), two = node("n2");
  std::string text(2 * (size_t{1} << 20) + 12'345, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2'654'435'761U >> 13);
  const auto file = upload(*one, "a", text);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(*testing::content_of(*two, file->id, {"a"}) == text);
  const auto content = two->contents().open(file->id);
  for (const size_t from : {size_t{0}, (size_t{1} << 20) - 5, text.size() - 3}) {
    EXPECT_EQ(*(*content)->read(from, 10), text.substr(from, 10));
  }
  EXPECT_EQ(*(*content)->read(text.size(), 10), "");
  ASSERT_TRUE(await<FileRecord>([&](Done<FileRecord> done) {
                two->files().remove(file->id, {"a"}, std::move(done));
              }).ok());
  EXPECT_EQ(integer_of(*one, "SELECT count(*) FROM file_parts"), 0);
  {
    auto dropped = one->files().create("a");
    ASSERT_TRUE((*dropped)->append(text).ok());
  }
  EXPECT_TRUE(within(5s, [&] { return integer_of(*one, "SELECT count(*) FROM file_parts") == 0; }));
}

TEST_F(PostgresTest, ARowComesWithItsWholeContent) {
  const auto store = node("n1");
  const Status refused =
      testing::sql(*store,
                   "INSERT INTO files (id, owner, purpose, name, bytes, created_at) VALUES ('f', "
                   "'a', 'batch', 'n', 5, 0)");
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("0 bytes, not 5"));
}

TEST_F(PostgresTest, AConnectionThatBreaksIsMadeAnewAndNothingIsHalfDone) {
  const auto store = node("n1");
  const auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x BIGINT)").ok());
  const auto other = database();
  const Status broken = db->transaction([&]() -> Status {
    SKEIN_TRY(db->exec("INSERT INTO t VALUES (1)"));
    SKEIN_ASSIGN(const int64_t pid, db->integer("SELECT CAST(pg_backend_pid() AS BIGINT)"));
    SKEIN_TRY(other->run("SELECT pg_terminate_backend(CAST($1 AS INTEGER))", {pid}).status());
    std::this_thread::sleep_for(100ms);
    (void)db->exec("INSERT INTO t VALUES (2)");
    return db->exec("INSERT INTO t VALUES (3)");  // not on a new connection, by itself
  });
  EXPECT_EQ(broken.code(), Code::kUnavailable) << broken.message();
  EXPECT_TRUE(within(3s, [&] { return db->integer("SELECT count(*) FROM t").ok(); }));
  EXPECT_EQ(*db->integer("SELECT count(*) FROM t"), 0);
}

// Its machine confirms what is sent, so that the line looks sound.
TEST_F(PostgresTest, AServerThatStandsStillIsGivenUp) {
  const auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x BYTEA)").ok());
  const Frozen frozen(*db->integer("SELECT CAST(pg_backend_pid() AS BIGINT)"));
  const auto began = std::chrono::steady_clock::now();
  db->finish_by(began + 300ms);
  const std::string much(8 << 20, 'x');  // more than the line takes without a reader
  const Status status = db->transaction([&]() -> Status {
    return db->exec("INSERT INTO t VALUES ($1)", {std::as_bytes(std::span(much))});
  });
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("does not answer"));
  EXPECT_EQ(db->exec("INSERT INTO t VALUES ('x')").code(), Code::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 3s);
}

TEST_F(PostgresTest, AFaultThatWasNotNoticedCommitsNothing) {
  const auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x BIGINT UNIQUE)").ok());
  const Status kept = db->transaction([&]() -> Status {
    SKEIN_TRY(db->exec("INSERT INTO t VALUES (1)"));
    (void)db->exec("INSERT INTO t VALUES (1)");
    return {};
  });
  EXPECT_FALSE(kept.ok());
  EXPECT_EQ(*db->integer("SELECT count(*) FROM t"), 0);
}

TEST_F(PostgresTest, AWriteThatFailsTakesNoOtherWithIt) {
  auto db = database();
  ASSERT_TRUE(db->exec("CREATE TABLE t (x BIGINT UNIQUE)").ok());
  std::vector<Code> codes(4);
  {
    StoreThread thread(std::move(db), {});
    const auto insert = [&](size_t slot, int64_t x) {
      thread.write(
          [x](Database& d) -> Status {
            SKEIN_TRY(d.run("INSERT INTO t VALUES ($1)", {x + 100}).status());
            if (x == 3) throw std::bad_alloc();
            return d.run("INSERT INTO t VALUES ($1)", {x}).status();
          },
          [&codes, slot](const Status& status) { codes[slot] = status.code(); });
    };
    insert(0, 1);
    insert(1, 1);  // breaks UNIQUE with its first row
    insert(2, 3);
    insert(3, 2);
  }
  EXPECT_THAT(codes, ElementsAre(Code::kOk, Code::kAlreadyExists, Code::kInternal, Code::kOk));
  EXPECT_EQ(*database()->integer("SELECT count(*) FROM t"), 4);
}

TEST_F(PostgresTest, WritesThatWaitForEachOtherAreRunAgain) {
  auto one = database(), two = database();
  ASSERT_TRUE(
      one->exec("CREATE TABLE t (x BIGINT, n BIGINT); INSERT INTO t VALUES (1, 0), (2, 0)").ok());
  std::atomic<int> first{0};
  std::vector<Status> ends(2);
  {
    StoreThread left(std::move(one), {}), right(std::move(two), {});
    const auto post = [&](StoreThread& thread, size_t slot) {
      thread.write(
          [&first, slot](Database& d) -> Status {
            const auto from = static_cast<int64_t>(slot) + 1;
            SKEIN_TRY(d.run("UPDATE t SET n = n + 1 WHERE x = $1", {from}).status());
            for (++first; first < 2;) std::this_thread::sleep_for(1ms);  // each has its first row
            return d.run("UPDATE t SET n = n + 1 WHERE x = $1", {3 - from}).status();
          },
          [&ends, slot](Status status) { ends[slot] = std::move(status); });
    };
    post(left, 0);
    post(right, 1);
  }
  EXPECT_TRUE(ends[0].ok()) << ends[0].message();
  EXPECT_TRUE(ends[1].ok()) << ends[1].message();
  EXPECT_EQ(*database()->integer("SELECT count(*) FROM t WHERE n = 2"), 2);
}

TEST_F(PostgresTest, AStateFolderMovesIntoTheStore) {
  StoreOptions on_folder;
  on_folder.state_dir = folder_ / "old";
  std::string file, batch;
  HashKey salt{};
  {
    auto old = Store::open(on_folder);
    ASSERT_TRUE(old.ok()) << old.message();
    salt = (*old)->salt_key();
    KeyRecord key;
    key.name = "kept";
    key.id = "id";
    ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                  (*old)->keys().add(key, std::move(done));
                }).ok());
    file = upload(**old, "id", std::string(1'500'000, 'z'))->id;
    batch = create_batch_of(**old, "id", file)->id;
    ASSERT_TRUE(testing::sql(**old,
                             "INSERT INTO batch_lines (batch, line, first_byte, bytes, "
                             "status_code, body, headers) VALUES (1, 1, 0, 1, 200, '{}', '{\"h\": "
                             "1}')")
                    .ok());
    (*old)->usage().add("id", {1, 2, 3, 4});
    EXPECT_EQ(migrate_state(on_folder.state_dir, options("").url).status().code(),
              Code::kAlreadyExists)
        << "a server runs on it";
  }
  const auto moved = migrate_state(on_folder.state_dir, options("").url);
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_EQ(moved->files, 1U);
  EXPECT_EQ(moved->bytes, 1'500'000U);
  const auto store = node("n1");
  EXPECT_EQ(store->salt_key(), salt);
  EXPECT_EQ(testing::content_of(*store, file, {"id"})->size(), 1'500'000U);
  EXPECT_EQ(testing::batch_of(*store, batch, {"id"})->status, BatchStatus::kValidating);
  EXPECT_EQ(store->batches().output_lines(1, 0, 9)->front().result.headers, R"({"h": 1})");
  EXPECT_TRUE(upload(*store, "id", "after").ok()) << "numbers go on";
  EXPECT_EQ(integer_of(*store, "SELECT output_tokens FROM usage"), 4);
  EXPECT_EQ(migrate_state(on_folder.state_dir, options("").url).status().code(),
            Code::kAlreadyExists)
      << "there is something in it";
}

}  // namespace
}  // namespace skein
