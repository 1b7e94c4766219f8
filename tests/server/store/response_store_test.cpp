// Responses that are kept: chains of them, limits, owners, age, and a disk that takes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::integer_of;
using testing::open_store;
using testing::sql;

constexpr int64_t kDayS = int64_t{24} * 3600;
constexpr uint64_t kBytes = 100;  // of a response of this test

class ResponseStoreTest : public ::testing::Test {
 protected:
  void open(const ResponseLimits& limits = {}, const FileLimits& files = {}) {
    store_.reset();
    store_ = open_store({.state_dir = folder_ / "state",
                         .group_window_us = 0,
                         .min_free_bytes = 0,
                         .file_limits = files,
                         .response_limits = limits,
                         .unix_time_s = [this] { return calendar_s_.load(); },
                         .steady_time_s = [this] { return now_s_.load(); }});
  }
  // A response of kBytes that says its own id.
  Status add(const std::string& id, const std::string& previous = "",
             const std::string& owner = "a", uint64_t bytes = kBytes) {
    NewResponse response{.id = id,
                         .owner = owner,
                         .previous = previous,
                         .input = "[\"in " + id + "\"]",
                         .output = "[\"out " + id + "\"]",
                         .head = "{\"output\":",
                         .tail = "}"};
    SKEIN_CHECK(response.bytes() < bytes, "{} bytes are too few", bytes);
    response.tail.insert(0, bytes - response.bytes(), ' ');
    return await_status(
        [&](DoneStatus done) { store_->responses().add(std::move(response), std::move(done)); });
  }
  Result<std::string> get(const std::string& id, const Scope& scope = {"a"}) {
    return await<std::string>(
        [&](Done<std::string> done) { store_->responses().get(id, scope, std::move(done)); });
  }
  bool has(const std::string& id, const Scope& scope = {"a"}) { return get(id, scope).ok(); }
  Result<std::vector<ConversationTurn>> conversation(const std::string& id,
                                                     const Scope& scope = {"a"}) {
    return await<std::vector<ConversationTurn>>([&](Done<std::vector<ConversationTurn>> done) {
      store_->responses().conversation(id, scope, std::move(done));
    });
  }
  // The ids of the turns, oldest first.
  std::string chain(const std::string& id) {
    const auto turns = conversation(id);
    if (!turns.ok()) return turns.message();
    std::string ids;
    for (const ConversationTurn& turn : *turns) ids += turn.id;
    return ids;
  }
  Status remove(const std::string& id, const Scope& scope = {"a"}) {
    return await_status(
        [&](DoneStatus done) { store_->responses().remove(id, scope, std::move(done)); });
  }
  int64_t rows() { return integer_of(*store_, "SELECT count(*) FROM responses"); }
  bool eventually_rows(int64_t count) {
    for (int i = 0; i < 1000 && rows() != count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return rows() == count;
  }
  // What is counted is what there is, and nothing hidden is without a use.
  void check_counts() {
    for (const char* owner : {"a", "b"}) {
      const auto number = [&](const char* what, const char* table) {
        return integer_of(
            *store_,
            fmt::format("SELECT CAST(coalesce(sum({}), 0) AS BIGINT) FROM {} WHERE owner = "
                        "'{}'",
                        what, table, owner));
      };
      EXPECT_EQ(number("bytes", "response_use"), number("bytes", "responses")) << owner;
      EXPECT_EQ(number("kept", "response_use"),
                number("CASE WHEN hidden = 0 THEN 1 ELSE 0 END", "responses"))
          << owner;
      EXPECT_EQ(store_->file_budget().use_of(owner).bytes,
                static_cast<uint64_t>(number("bytes", "responses")))
          << owner;
    }
    EXPECT_EQ(integer_of(*store_,
                         "SELECT count(*) FROM responses AS r WHERE hidden = 1 AND NOT "
                         "EXISTS (SELECT 1 FROM responses WHERE previous = r.seq)"),
              0);
  }

  testing::TestFolder folder_;
  std::atomic<int64_t> now_s_{1'000}, calendar_s_{1'000'000'000};
  std::unique_ptr<Store> store_;
};

TEST_F(ResponseStoreTest, ATurnComesBackAsItWas) {
  open();
  ASSERT_TRUE(add("r1").ok());
  ASSERT_TRUE(add("r2", "r1").ok());
  EXPECT_THAT(*get("r2"), HasSubstr("{\"output\":[\"out r2\"]"));
  EXPECT_EQ(get("r2")->size(), kBytes - std::string("[\"in r2\"]").size());
  const auto turns = conversation("r2");
  ASSERT_EQ(turns->size(), 2U);
  EXPECT_EQ((*turns)[0].input, "[\"in r1\"]");
  EXPECT_EQ((*turns)[0].output, "[\"out r1\"]");
  EXPECT_EQ((*turns)[1].input, "[\"in r2\"]");
  EXPECT_EQ(add("r2").code(), Code::kAlreadyExists);
  EXPECT_EQ(add("r3", "nothing").code(), Code::kNotFound);
  check_counts();
  open();  // after a restart, with its counts
  EXPECT_EQ(chain("r2"), "r1r2");
  check_counts();
}

TEST_F(ResponseStoreTest, AnotherOwnersIsNoneAtAll) {
  open();
  ASSERT_TRUE(add("r1").ok());
  const Scope other{"b"}, admin{"c", true};
  const std::string none = get("r0", other).message();
  EXPECT_EQ(get("r1", other).status().code(), Code::kNotFound);
  EXPECT_EQ(get("r1", other).message(), std::string(none).replace(none.find("r0"), 2, "r1"));
  EXPECT_EQ(conversation("r1", other).status().code(), Code::kNotFound);
  EXPECT_EQ(remove("r1", other).code(), Code::kNotFound);
  EXPECT_EQ(add("r2", "r1", "b").code(), Code::kNotFound);
  EXPECT_TRUE(has("r1", admin));
  EXPECT_TRUE(remove("r1", admin).ok());
  EXPECT_FALSE(has("r1"));
  check_counts();
}

TEST_F(ResponseStoreTest, WhatIsContinuedStaysForThoseThatContinueIt) {
  open();
  for (const auto& [id, previous] : std::vector<std::pair<const char*, const char*>>{
           {"1", ""}, {"2", "1"}, {"3", "2"}, {"x", "2"}}) {
    ASSERT_TRUE(add(id, previous).ok());
  }
  ASSERT_TRUE(remove("2").ok());
  EXPECT_FALSE(has("2"));
  EXPECT_EQ(conversation("2").status().code(), Code::kNotFound);
  EXPECT_EQ(remove("2").code(), Code::kNotFound) << "once is enough";
  EXPECT_EQ(chain("3"), "123");
  ASSERT_TRUE(remove("1").ok());
  EXPECT_EQ(chain("x"), "12x");
  EXPECT_EQ(rows(), 4);
  check_counts();
  ASSERT_TRUE(remove("3").ok());
  EXPECT_EQ(rows(), 3) << "the other branch needs the rest";
  EXPECT_EQ(chain("x"), "12x");
  check_counts();
  ASSERT_TRUE(remove("x").ok());
  EXPECT_EQ(rows(), 0);
  check_counts();
}

TEST_F(ResponseStoreTest, TheOldestGivesWayToOneTooMany) {
  open({.per_key = 3});
  for (const char* id : {"1", "2", "3"}) ASSERT_TRUE(add(id).ok());
  ASSERT_TRUE(add("other", "", "b").ok());
  EXPECT_TRUE(has("1")) << "as many as may be";
  ASSERT_TRUE(add("4").ok());
  EXPECT_FALSE(has("1"));
  EXPECT_TRUE(has("2") && has("3") && has("4") && has("other", {"b"}));
  // What it continues is the next to go, and is still read.
  ASSERT_TRUE(add("5", "2").ok());
  EXPECT_FALSE(has("2"));
  EXPECT_EQ(chain("5"), "25");
  check_counts();
}

TEST_F(ResponseStoreTest, TheOldestGiveWayToBytes) {
  open({.bytes_per_key = 10 * kBytes});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(add(std::to_string(i)).ok());
  EXPECT_TRUE(has("0")) << "as many bytes as may be";
  ASSERT_TRUE(add("one more", "", "a", kBytes + 1).ok());
  EXPECT_FALSE(has("0") || has("1")) << "one byte more takes two";
  EXPECT_TRUE(has("2"));
  ASSERT_TRUE(add("all", "", "a", 10 * kBytes).ok());
  EXPECT_EQ(rows(), 1);
  const Status more = add("more", "", "a", 10 * kBytes + 1);
  EXPECT_EQ(more.code(), Code::kOutOfRange);
  EXPECT_THAT(more.message(), HasSubstr("1001 bytes"));
  EXPECT_THAT(more.message(), HasSubstr("keeps 1000"));
  EXPECT_EQ(add("child", "all").code(), Code::kOutOfRange) << "with what it continues";
  EXPECT_TRUE(has("all")) << "nothing gives way in vain";
  check_counts();
}

// More than one job removes.
TEST_F(ResponseStoreTest, HundredsGiveWayToOne) {
  open({.bytes_per_key = 1000 * kBytes});
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(add(std::to_string(i)).ok());
  ASSERT_TRUE(add("large", "999", "a", 900 * kBytes).ok());
  EXPECT_EQ(rows(), 101);
  EXPECT_EQ(chain("large"), "999large");
  check_counts();
  ASSERT_TRUE(add("whole", "999", "a", 999 * kBytes).ok());
  EXPECT_EQ(rows(), 2);
  EXPECT_FALSE(has("999"));
  EXPECT_EQ(chain("whole"), "999whole");
  check_counts();
}

TEST_F(ResponseStoreTest, NoneAreKeptWhereTheLimitIsNone) {
  open({.per_key = 0});
  EXPECT_EQ(add("1").code(), Code::kOutOfRange);
  open({.bytes_per_key = 0});
  EXPECT_EQ(add("1").code(), Code::kOutOfRange);
  EXPECT_EQ(rows(), 0);
  check_counts();
}

TEST_F(ResponseStoreTest, AConversationIsContinuedSoFar) {
  open({.turns = 3, .conversation_bytes = 1'000'000});
  ASSERT_TRUE(add("1").ok() && add("2", "1").ok() && add("3", "2").ok() && add("4", "3").ok());
  EXPECT_EQ(chain("3"), "123");
  EXPECT_EQ(conversation("4").status().code(), Code::kOutOfRange);
  EXPECT_THAT(chain("4"), HasSubstr("4 responses, and 3 is the most"));
  const uint64_t said = std::string("[\"in 1\"][\"out 1\"]").size();
  open({.conversation_bytes = 2 * said});
  EXPECT_EQ(chain("2"), "12");
  open({.conversation_bytes = 2 * said - 1});
  EXPECT_EQ(conversation("2").status().code(), Code::kOutOfRange);
  EXPECT_THAT(chain("2"), HasSubstr(fmt::format("{} bytes, and {} is", 2 * said, 2 * said - 1)));
  EXPECT_TRUE(has("2"));
}

TEST_F(ResponseStoreTest, WhatIsTooOldIsNotFoundAndGoes) {
  open({.lifetime_days = 30});
  ASSERT_TRUE(add("1").ok());
  now_s_ += 10 * kDayS;
  ASSERT_TRUE(add("2", "1").ok());
  now_s_ += 20 * kDayS - 1;
  EXPECT_TRUE(has("1"));
  now_s_ += 1;
  EXPECT_FALSE(has("1"));
  EXPECT_EQ(chain("2"), "12") << "for as long as the later one lives";
  now_s_ += 10 * kDayS;
  EXPECT_FALSE(has("2"));
  EXPECT_TRUE(eventually_rows(0));
  check_counts();
}

TEST_F(ResponseStoreTest, ACalendarThatJumpsEndsNothingAndRestartsDoNotCountAnew) {
  open({.lifetime_days = 30});
  ASSERT_TRUE(add("1").ok());
  calendar_s_ += 400 * kDayS;
  EXPECT_TRUE(has("1"));
  calendar_s_ = 0;
  EXPECT_TRUE(has("1"));
  now_s_ += 20 * kDayS;
  ASSERT_TRUE(add("2").ok());
  now_s_ = 5;  // another boot
  open({.lifetime_days = 30});
  now_s_ += 10 * kDayS - 1;
  EXPECT_TRUE(has("1"));
  now_s_ += 1;
  EXPECT_FALSE(has("1"));
  EXPECT_TRUE(has("2"));
}

TEST_F(ResponseStoreTest, TimeOfAServerWithoutNewResponsesCountsAfterARestart) {
  open({.lifetime_days = 30});
  ASSERT_TRUE(add("1").ok());
  now_s_ += 29 * kDayS;
  const auto noted_s = [this] { return integer_of(*store_, "SELECT seconds FROM served_time"); };
  for (int i = 0; i < 1000 && noted_s() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(noted_s(), 29 * kDayS);
  open({.lifetime_days = 30});
  EXPECT_TRUE(has("1"));
  now_s_ += kDayS;
  EXPECT_FALSE(has("1"));
}

TEST_F(ResponseStoreTest, ALongConversationGoesInPieces) {
  open({.per_key = 1});  // so that each hides the one before
  constexpr int kTurns = 600;
  for (int i = 0; i < kTurns; ++i) {
    ASSERT_TRUE(add(std::to_string(i), i == 0 ? "" : std::to_string(i - 1)).ok());
  }
  ASSERT_EQ(rows(), kTurns);
  ASSERT_TRUE(remove(std::to_string(kTurns - 1)).ok());
  EXPECT_GT(rows(), 0) << "nobody waits for all of it";
  EXPECT_TRUE(eventually_rows(0));
  check_counts();
}

TEST_F(ResponseStoreTest, ARevokedKeysResponsesGo) {
  open();
  KeyRecord key;
  key.id = "a";
  key.name = "team";
  ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                store_->keys().add(key, std::move(done));
              }).ok());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(add(std::to_string(i), i == 0 ? "" : "0").ok());
  ASSERT_TRUE(add("other", "", "b").ok());
  ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                store_->keys().revoke("team", std::move(done));
              }).ok());
  EXPECT_TRUE(eventually_rows(1));
  EXPECT_TRUE(has("other", {"b"}));
  EXPECT_EQ(add("late").code(), Code::kNotFound) << "an answer that ends after its key";
  check_counts();
}

TEST_F(ResponseStoreTest, TheirBytesAreOnTheAccountOfFiles) {
  open({}, {.bytes_per_key = 3 * kBytes, .bytes = 5 * kBytes});
  ASSERT_TRUE(add("1").ok() && add("2").ok());
  EXPECT_FALSE(testing::upload(*store_, "a", std::string(kBytes + 1, 'x')).ok());
  EXPECT_TRUE(testing::upload(*store_, "a", std::string(kBytes, 'x')).ok());
  const Status full = add("3");
  EXPECT_EQ(full.code(), Code::kInvalidArgument);
  EXPECT_THAT(full.message(), HasSubstr("300 bytes, and 300 is the most"));
  EXPECT_EQ(store_->file_budget().use_of("a").bytes, 3 * kBytes);
  ASSERT_TRUE(add("4", "", "b").ok() && add("5", "", "b").ok());
  EXPECT_EQ(add("6", "", "b").code(), Code::kResourceExhausted) << "the limit of all";
  ASSERT_TRUE(remove("1").ok());
  EXPECT_TRUE(add("6", "", "b").ok());
}

TEST_F(ResponseStoreTest, ADiskThatTakesNothingLeavesWhatThereIs) {
  SKEIN_SQLITE_ALONE();
  open({.per_key = 2});
  ASSERT_TRUE(add("1").ok() && add("2", "1").ok());
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = ON").ok());
  EXPECT_FALSE(add("3", "2").ok());
  EXPECT_FALSE(remove("1").ok());
  EXPECT_TRUE(has("1"));
  EXPECT_EQ(store_->file_budget().use_of("a").bytes, 2 * kBytes);
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = OFF").ok());
  ASSERT_TRUE(add("3", "2").ok());
  EXPECT_EQ(chain("3"), "123");
  check_counts();
}

// As of a server that died while it made room for what continues it.
TEST_F(ResponseStoreTest, AHiddenOneThatNobodyNeedsGoesWithTheNextServer) {
  open();
  ASSERT_TRUE(add("1").ok() && add("2", "1").ok() && add("3").ok());
  ASSERT_TRUE(sql(*store_,
                  "UPDATE responses SET hidden = 1 WHERE id IN ('1', '2');"
                  "UPDATE response_use SET kept = 1")
                  .ok());
  open();
  EXPECT_TRUE(eventually_rows(1));
  EXPECT_TRUE(has("3"));
  check_counts();
}

TEST_F(ResponseStoreTest, AfterTheEndNothingIsTaken) {
  open();
  store_->responses().close();
  EXPECT_EQ(add("1").code(), Code::kUnavailable);
  EXPECT_EQ(store_->file_budget().use_of("a").bytes, 0U);
}

}  // namespace
}  // namespace skein
