// Several servers on one store.
#include <algorithm>
#include <atomic>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/postgres_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::create_batch_of;
using ::testing::ElementsAre;
using testing::integer_of;
using ::testing::IsEmpty;
using testing::upload;

TEST_F(PostgresTest, TwoNodesNeverHaveTheSameLine) {
  const auto one = node("n1"), two = node("n2");
  const int64_t batch = start(*one, 100);
  EXPECT_NE(one->epoch(), two->epoch());
  std::vector<int64_t> all;
  std::mutex mutex;
  const auto work = [&](Store& store) {
    for (int i = 0; i < 10; ++i) {
      for (const int64_t line : claim(store, batch, 5)) {
        EXPECT_EQ(finish(store, store.epoch(), {batch, line}), Code::kOk);
        const std::lock_guard lock(mutex);
        all.push_back(line);
      }
    }
  };
  std::thread other([&] { work(*two); });
  work(*one);
  other.join();
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 100U);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i) + 1);
  const OpenBatch open = one->batches().open_batches()->front();
  EXPECT_EQ(open.record.completed_lines, 100U);
}

TEST_F(PostgresTest, ALeaseThatEndsGivesItsLinesToOthersAndFencesItsOwner) {
  const auto one = node("n1");
  const int64_t batch = start(*one, 3);
  // Opened as another server whose thread never ticks again: it stands still.
  const auto db = database();
  const auto frozen = insert_node(*db, {"n2", 600, 0});
  ASSERT_TRUE(frozen.ok());
  ASSERT_TRUE(db->exec("UPDATE batch_lines SET epoch = $1 WHERE line < 3", {*frozen}).ok());
  EXPECT_THAT(claim(*one, batch, 9), ElementsAre(3)) << "the others are somebody's";
  EXPECT_TRUE(check_epoch(*db, *frozen).ok());
  std::this_thread::sleep_for(700ms);
  EXPECT_EQ(check_epoch(*db, *frozen).code(), Code::kNotFound) << "it may begin nothing";
  EXPECT_EQ(renew_node(*db, *frozen, {"n2", 600, 0}).code(), Code::kNotFound);
  // What it had run to the end counts as long as nobody else has it.
  EXPECT_EQ(finish(*one, *frozen, {batch, 1}), Code::kOk);
  EXPECT_TRUE(within(5s, [&] { return integer_of(*one, "SELECT count(*) FROM nodes") == 1; }));
  EXPECT_EQ(finish(*one, *frozen, {batch, 2}), Code::kNotFound) << "too late";
  EXPECT_TRUE(one->batches().claim_suspect(one->epoch(), {batch, 2}).ok());
  EXPECT_EQ(finish(*one, *frozen, {batch, 2}), Code::kNotFound);
  EXPECT_EQ(finish(*one, one->epoch(), {batch, 2}), Code::kOk);
}

TEST_F(PostgresTest, ANodeInTheMiddleOfATransactionIsNotEnded) {
  const auto one = database(), two = database();
  const auto opened = node("n0");  // the tables
  const auto epoch = insert_node(*one, {"n1", 200, 0});
  const Status held = one->transaction([&]() -> Status {
    SKEIN_TRY(check_epoch(*one, *epoch));
    std::this_thread::sleep_for(300ms);
    int64_t ended = -1;
    SKEIN_TRY(two->transaction([&]() -> Status {
      SKEIN_ASSIGN(ended, end_dead_nodes(*two));
      return {};
    }));
    EXPECT_EQ(ended, 0);
    return {};
  });
  EXPECT_TRUE(held.ok()) << held.message();
  EXPECT_TRUE(within(
      5s, [&] { return *two->integer("SELECT count(*) FROM nodes WHERE name = 'n1'") == 0; }));
}

TEST_F(PostgresTest, ALostEpochIsFollowedByANewOne) {
  const auto one = node("n1"), two = node("n2");
  const int64_t old = one->epoch();
  ASSERT_TRUE(testing::sql(*two, "DELETE FROM nodes WHERE name = 'n1'").ok());
  EXPECT_EQ(one->batches().renew(old, {}).code(), Code::kNotFound);
  const auto epoch = one->begin_new_epoch();
  ASSERT_TRUE(epoch.ok()) << epoch.message();
  EXPECT_GT(*epoch, old);
  EXPECT_TRUE(one->batches().renew(one->epoch(), {}).ok());
  // Another server has come in its place.
  const auto again = node("n1");
  EXPECT_EQ(one->begin_new_epoch().status().code(), Code::kNotFound);
}

TEST_F(PostgresTest, WhatAServerThatLeavesHadIsToBeHadAtOnce) {
  const auto one = node("n1"), two = node("n2");
  const int64_t batch = start(*one, 2);
  EXPECT_THAT(claim(*one, batch, 2), ElementsAre(1, 2));
  EXPECT_THAT(claim(*two, batch, 2), IsEmpty());
  one->end_epoch();
  EXPECT_THAT(claim(*two, batch, 2), ElementsAre(1, 2));
  EXPECT_EQ(integer_of(*two, "SELECT count(*) FROM batch_lines WHERE deaths != 0"), 0);
}

TEST_F(PostgresTest, OneServerValidatesABatch) {
  const auto one = node("n1"), two = node("n2");
  const auto file = upload(*one, "a", "x");
  ASSERT_TRUE(create_batch_of(*one, "a", file->id).ok());
  const OpenBatch batch = one->batches().open_batches()->front();
  EXPECT_TRUE(*one->batches().take(one->epoch(), batch));
  EXPECT_TRUE(*one->batches().take(one->epoch(), batch)) << "it has it";
  EXPECT_FALSE(*two->batches().take(two->epoch(), batch));
  const std::vector<InputLine> lines(1);
  EXPECT_EQ(two->batches().insert_lines(two->epoch(), batch.seq, lines).code(), Code::kNotFound);
  EXPECT_TRUE(two->batches().begin(two->epoch(), batch.seq).ok()) << "without effect";
  EXPECT_EQ(testing::batch_of(*two, batch.record.id, {"a"})->status, BatchStatus::kValidating);
  one->end_epoch();
  EXPECT_TRUE(*two->batches().take(two->epoch(), batch));
}

TEST_F(PostgresTest, ARevokedKeyIsKnownEverywhereWithinASecond) {
  const auto one = node("n1"), two = node("n2");
  std::atomic<int> active{-1};
  ASSERT_TRUE(two->keys()
                  .watch([&](const std::vector<KeyRecord>& keys) {
                    active = static_cast<int>(
                        std::count_if(keys.begin(), keys.end(),
                                      [](const auto& key) { return key.revoked_at_s == 0; }));
                  })
                  .ok());
  const auto revoke = [&](const char* name) {
    return await<KeyRecord>(
        [&](Done<KeyRecord> done) { one->keys().revoke(name, std::move(done)); });
  };
  for (const char* name : {"a", "b"}) {
    KeyRecord key;
    key.name = name;
    key.id = std::string("id-") + name;
    ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                  one->keys().add(key, std::move(done));
                }).ok());
  }
  EXPECT_TRUE(within(1s, [&] { return active == 2; }));
  ASSERT_TRUE(revoke("a").ok());
  EXPECT_TRUE(within(1s, [&] { return active == 1; }));
  ASSERT_TRUE(testing::sql(*two, "UNLISTEN *").ok());  // as through a pool of connections
  ASSERT_TRUE(revoke("b").ok());
  EXPECT_TRUE(within(2s, [&] { return active == 0; }));
}

// Ticks play no part in it: the first is over before the news, and the next is an hour away.
TEST_F(PostgresTest, NewsAreToldAtOnceAndManyTogether) {
  const auto tables = node("n0");
  const auto other = database();
  const auto change = [&] { EXPECT_TRUE(other->exec("NOTIFY skein, 'keys'").ok()); };
  std::atomic<int> told{0};
  StoreThread::Options options;
  options.tick_us = 3600 * kUsPerSecond;
  options.on_news = [&told](Database& db) {
    const auto changed = db.changed_elsewhere();
    if (changed.ok() && *changed) ++told;
  };
  StoreThread thread(database(), options);
  EXPECT_TRUE(within(30s, [&] { return told == 1; })) << "who has just come knows nothing";
  change();
  EXPECT_TRUE(within(30s, [&] { return told == 2; })) << "while it sleeps";
  const auto one = thread.read_and_wait<int64_t>([&](Database& db) {
    change();
    std::this_thread::sleep_for(200ms);
    return db.integer("SELECT CAST(pg_backend_pid() AS BIGINT)");
  });
  EXPECT_TRUE(within(30s, [&] { return told == 3; })) << "what came with an answer";
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 40; ++i) {
    change();
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(200ms);
  const std::chrono::microseconds every{StoreThread::kNewsEveryUs};
  EXPECT_GT(told, 3);
  EXPECT_LE(told - 3, (std::chrono::steady_clock::now() - began) / every + 1);

  // A line that broke can be read without end, and has nothing to say.
  ASSERT_TRUE(one.ok()) << one.message();
  ASSERT_TRUE(other->run("SELECT pg_terminate_backend(CAST($1 AS INTEGER))", {*one}).ok());
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 2) << "it never sleeps";
}

}  // namespace
}  // namespace skein
