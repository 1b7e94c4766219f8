#include "server/auth/key_ring.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "format/test_folder.h"
#include "server/auth/api_key.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

class KeyRingTest : public ::testing::Test {
 protected:
  // As another process would: its own connection.
  std::unique_ptr<Store> tool() {
    return testing::open_store(
        {.state_dir = folder_ / "state", .is_server = false, .group_window_us = 0});
  }
  // Makes a key and returns its text.
  static std::string add(Store& store, const std::string& name, bool admin = false) {
    const std::string secret = make_secret();
    const KeyDigest digest = digest_secret(secret);
    KeyRecord key;
    key.id = make_key_id();
    key.name = name;
    key.tier = Priority::LOW;
    key.models = {"m1", "org/m2"};
    key.requests_per_minute = 60;
    key.tokens_per_minute = 1000;
    key.admin = admin;
    key.salt = digest.salt;
    key.digest = digest.digest;
    const auto added =
        await<KeyRecord>([&](Done<KeyRecord> done) { store.keys().add(key, std::move(done)); });
    SKEIN_CHECK(added.ok(), "{}", added.message());
    return key_text(key.id, secret);
  }
  static void revoke(Store& store, const std::string& name) {
    const auto key =
        await<KeyRecord>([&](Done<KeyRecord> done) { store.keys().revoke(name, std::move(done)); });
    SKEIN_CHECK(key.ok(), "{}", key.message());
  }
  static std::string rotate(Store& store, const std::string& name) {
    const std::string secret = make_secret();
    const auto key = await<KeyRecord>([&](Done<KeyRecord> done) {
      store.keys().rotate(name, digest_secret(secret), std::move(done));
    });
    SKEIN_CHECK(key.ok(), "{}", key.message());
    return key_text(key->id, secret);
  }
  // Whether it comes true within a second.
  template <class Condition>
  static bool soon(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + 1s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }

  testing::TestFolder folder_;
  std::unique_ptr<Store> store_ = testing::open_state(folder_ / "state");
  KeyRing ring_{store_->salt_key()};

  void SetUp() override { ASSERT_TRUE(ring_.follow(store_->keys()).ok()); }
  void TearDown() override { store_.reset(); }
};

TEST_F(KeyRingTest, WithoutKeysEveryoneIsAnonymous) {
  EXPECT_TRUE(ring_.is_open());
  for (const char* credential : {"", "sk-whatever", "\xff"}) {
    const auto who = ring_.authenticate(credential);
    ASSERT_NE(who, nullptr);
    EXPECT_TRUE(who->is_anonymous());
    EXPECT_FALSE(who->admin);
    EXPECT_EQ(who->tier, Priority::NORMAL);
    EXPECT_TRUE(who->may_use("anything"));
  }
}

TEST_F(KeyRingTest, AKeyIsKnownWhenItsCallerIsToldSo) {
  const std::string key = add(*store_, "rag");
  EXPECT_FALSE(ring_.is_open());
  const auto who = ring_.authenticate(key);
  ASSERT_NE(who, nullptr);
  EXPECT_EQ(who->name, "rag");
  EXPECT_EQ(who->tier, Priority::LOW);
  EXPECT_EQ(who->requests_per_minute, 60U);
  EXPECT_EQ(who->tokens_per_minute, 1000U);
  EXPECT_TRUE(who->may_use("org/m2"));
  EXPECT_FALSE(who->may_use("m2"));
  EXPECT_EQ(who->scope().owner, parse_key(key)->id);
  EXPECT_FALSE(who->scope().all);
}

TEST_F(KeyRingTest, EverythingElseIsRefused) {
  const std::string key = add(*store_, "a");
  const std::string other = add(*store_, "b");
  const auto a = *parse_key(key);
  const auto b = *parse_key(other);
  EXPECT_EQ(ring_.authenticate(""), nullptr);
  EXPECT_EQ(ring_.authenticate("sk-"), nullptr);
  EXPECT_EQ(ring_.authenticate(key + "0"), nullptr);
  EXPECT_EQ(ring_.authenticate(key_text(a.id, b.secret)), nullptr);
  EXPECT_EQ(ring_.authenticate(key_text(make_key_id(), a.secret)), nullptr);
  EXPECT_EQ(ring_.authenticate(key_text(a.id, make_secret())), nullptr);
}

TEST_F(KeyRingTest, RevokedIsRefusedAndTheLastRevocationClosesTheServer) {
  const std::string key = add(*store_, "a");
  const std::string id(parse_key(key)->id);
  EXPECT_NE(ring_.find(id), nullptr);
  revoke(*store_, "a");
  EXPECT_EQ(ring_.authenticate(key), nullptr);
  EXPECT_EQ(ring_.find(id), nullptr);
  EXPECT_FALSE(ring_.is_open());
  EXPECT_EQ(ring_.authenticate(""), nullptr);
  const std::string again = add(*store_, "a");  // the name is free, the identity is new
  EXPECT_NE(parse_key(again)->id, id);
  EXPECT_NE(ring_.authenticate(again), nullptr);
}

TEST_F(KeyRingTest, RotationKeepsTheIdentityAndEndsTheOldSecret) {
  const std::string old_key = add(*store_, "a", true);
  const auto before = ring_.authenticate(old_key);
  const std::string new_key = rotate(*store_, "a");
  EXPECT_EQ(ring_.authenticate(old_key), nullptr);
  const auto after = ring_.authenticate(new_key);
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->key_id, before->key_id);
  EXPECT_EQ(after->salt, before->salt);
  EXPECT_TRUE(after->admin);
  EXPECT_TRUE(after->scope().all);
}

TEST_F(KeyRingTest, SaltsDifferByKeyAndFolderAndSurviveARestart) {
  const std::string a = add(*store_, "a");
  const std::string b = add(*store_, "b");
  const Hash128 salt = ring_.authenticate(a)->salt;
  EXPECT_NE(salt, ring_.authenticate(b)->salt);
  EXPECT_NE(salt, ring_.find("")->salt);
  store_.reset();
  store_ = testing::open_state(folder_ / "state");
  KeyRing again(store_->salt_key());
  ASSERT_TRUE(again.follow(store_->keys()).ok());
  EXPECT_EQ(again.authenticate(a)->salt, salt);
  const auto elsewhere = testing::open_state(folder_ / "other");
  EXPECT_NE(elsewhere->salt_key(), store_->salt_key());
  ASSERT_TRUE(again.follow(store_->keys()).ok());
  store_.reset();
}

TEST_F(KeyRingTest, ChangesOfAnotherProcessCountWithinASecond) {
  const auto other = tool();
  const std::string key = add(*other, "a");
  EXPECT_TRUE(soon([&] { return !ring_.is_open() && ring_.authenticate(key) != nullptr; }));
  const std::string new_key = rotate(*other, "a");
  EXPECT_TRUE(soon([&] { return ring_.authenticate(new_key) != nullptr; }));
  EXPECT_EQ(ring_.authenticate(key), nullptr);
  revoke(*other, "a");
  EXPECT_TRUE(soon([&] { return ring_.authenticate(new_key) == nullptr; }));
}

TEST_F(KeyRingTest, ReloadAsksAtOnce) {
  const std::string key = add(*tool(), "a");
  ASSERT_TRUE(await_status([&](DoneStatus done) { store_->keys().reload(std::move(done)); }).ok());
  EXPECT_NE(ring_.authenticate(key), nullptr);
}

TEST_F(KeyRingTest, ARefusedChangeChangesNothing) {
  SKEIN_SQLITE_ALONE();
  add(*store_, "a");
  ASSERT_TRUE(testing::sql(*store_, "PRAGMA query_only = ON").ok());
  const auto result =
      await<KeyRecord>([&](Done<KeyRecord> done) { store_->keys().revoke("a", std::move(done)); });
  EXPECT_EQ(result.status().code(), Code::kUnavailable);
  EXPECT_FALSE(ring_.is_open());
}

TEST_F(KeyRingTest, ARevokeThatCouldNotBeWrittenIsTriedAgain) {
  SKEIN_SQLITE_ALONE();
  const auto revoked = [this] {
    return testing::integer_of(*store_, "SELECT count(*) FROM keys WHERE revoked_at IS NOT NULL");
  };
  const auto try_revoke = [this](const char* name) {
    return await<KeyRecord>(
        [&](Done<KeyRecord> done) { store_->keys().revoke(name, std::move(done)); });
  };
  const std::string key = add(*store_, "a");
  add(*store_, "b");
  ASSERT_TRUE(testing::sql(*store_,
                           "CREATE TEMP TRIGGER fault BEFORE UPDATE OF revoked_at ON keys BEGIN "
                           "SELECT RAISE(FAIL, 'planted by a test'); END")
                  .ok());
  for (const char* name : {"a", "b", "nobody"}) EXPECT_FALSE(try_revoke(name).ok());
  // Whoever gives a key a new secret wants it to be valid.
  ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                store_->keys().rotate("b", digest_secret(make_secret()), std::move(done));
              }).ok());
  EXPECT_EQ(revoked(), 0);
  ASSERT_TRUE(testing::sql(*store_, "DROP TRIGGER fault").ok());
  EXPECT_TRUE(soon([&] { return revoked() == 1; }));
  EXPECT_TRUE(soon([&] { return ring_.authenticate(key) == nullptr; }));
  EXPECT_EQ(try_revoke("a").status().code(), Code::kNotFound);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // two ticks of the store
  EXPECT_EQ(revoked(), 1);
}

TEST_F(KeyRingTest, ABarredKeyIsRefusedWhateverTheDatabaseSays) {
  const std::string key = add(*store_, "a");
  const std::string id = ring_.authenticate(key)->key_id;
  const std::string other = add(*store_, "b");
  ring_.bar("a", KeyRing::Bar::kKey);
  EXPECT_EQ(ring_.authenticate(key), nullptr);
  EXPECT_EQ(ring_.find(id), nullptr);
  ASSERT_TRUE(await_status([&](DoneStatus done) { store_->keys().reload(std::move(done)); }).ok());
  EXPECT_EQ(ring_.authenticate(key), nullptr);  // the database still has it
  EXPECT_NE(ring_.authenticate(other), nullptr);
}

TEST_F(KeyRingTest, ABarredSecretEndsAndANewOneCounts) {
  const std::string key = add(*store_, "a");
  const std::string id = ring_.authenticate(key)->key_id;
  ring_.bar(id, KeyRing::Bar::kSecret);
  EXPECT_EQ(ring_.authenticate(key), nullptr);
  EXPECT_NE(ring_.find(id), nullptr);  // its batches go on
  EXPECT_NE(ring_.authenticate(rotate(*store_, "a")), nullptr);
}

TEST_F(KeyRingTest, LookupsGoOnWhileKeysChange) {
  const std::string key = add(*store_, "stays");
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto who = ring_.authenticate(key);
        EXPECT_TRUE(who != nullptr && who->name == "stays");
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("k{}", i);
    add(*store_, name);
    if (i % 2 == 0) revoke(*store_, name);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace skein
