#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::content_of;
using testing::create_batch_of;
using testing::open_state;
using testing::open_store;
using testing::sql;
using testing::upload;

class FileTest : public ::testing::Test {
 protected:
  size_t contents() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(folder_ / "state/files")) {
      ++count;
    }
    return count;
  }
  Result<Page<FileRecord>> list(const Scope& scope, const ListOptions& options) {
    return await<Page<FileRecord>>([&](Done<Page<FileRecord>> done) {
      store_->files().list(scope, options, std::move(done));
    });
  }
  Status remove(const std::string& id, const Scope& scope) {
    return await<FileRecord>(
               [&](Done<FileRecord> done) { store_->files().remove(id, scope, std::move(done)); })
        .status();
  }
  Status get(const std::string& id, const Scope& scope) {
    return await<FileRecord>(
               [&](Done<FileRecord> done) { store_->files().get(id, scope, std::move(done)); })
        .status();
  }

  testing::TestFolder folder_;
  std::unique_ptr<Store> store_ = open_state(folder_ / "state");
};

TEST_F(FileTest, WhatWasUploadedIsReadBack) {
  const std::string text(3'000'000, 'x');
  const auto file = upload(*store_, "a", text);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->bytes, text.size());
  EXPECT_EQ(file->name, "input.jsonl");
  EXPECT_TRUE(*content_of(*store_, file->id, {"a"}) == text);
  store_.reset();
  store_ = open_state(folder_ / "state");
  EXPECT_TRUE(*content_of(*store_, file->id, {"a"}) == text);
}

TEST_F(FileTest, AnotherTenantsFileIsNotFoundInAnyWay) {
  const auto file = upload(*store_, "a", "text");
  const Scope other{"b"};
  EXPECT_EQ(get(file->id, other).code(), Code::kNotFound);
  EXPECT_EQ(content_of(*store_, file->id, other).status().code(), Code::kNotFound);
  EXPECT_EQ(remove(file->id, other).code(), Code::kNotFound);
  EXPECT_EQ(create_batch_of(*store_, "b", file->id).status().code(), Code::kNotFound);
  EXPECT_TRUE(list(other, {})->items.empty());
  EXPECT_EQ(list(other, {.after = file->id}).status().code(), Code::kNotFound);
  EXPECT_EQ(get(file->id, Scope{""}).code(), Code::kNotFound);
  EXPECT_TRUE(get(file->id, Scope{"admin", true}).ok());
  EXPECT_EQ(list(Scope{"admin", true}, {})->items.size(), 1U);
}

TEST_F(FileTest, IdsThatArePathsAreNotFound) {
  SKEIN_SQLITE_ALONE();
  folder_.write("state/files/secret", "x");
  for (const char* id : {"secret", "../skein.db", "..", "", "/etc/passwd", "file-../../skein.db"}) {
    EXPECT_EQ(content_of(*store_, id, {"", true}).status().code(), Code::kNotFound) << id;
    EXPECT_EQ(remove(id, {"", true}).code(), Code::kNotFound) << id;
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "state/files/secret"));
}

TEST_F(FileTest, PagesGoThroughEverythingOnce) {
  std::vector<std::string> ids;
  for (int i = 0; i < 7; ++i) {
    ids.push_back(upload(*store_, "a", "x", i % 2 == 0 ? "batch" : "other")->id);
    ASSERT_TRUE(upload(*store_, "b", "x").ok());
  }
  for (const bool oldest_first : {true, false}) {
    std::vector<std::string> seen;
    ListOptions options{.limit = 3, .oldest_first = oldest_first};
    for (bool more = true; more;) {
      const auto page = list({"a"}, options);
      ASSERT_TRUE(page.ok());
      for (const FileRecord& file : page->items) seen.push_back(file.id);
      more = page->has_more;
      options.after = seen.back();
    }
    if (!oldest_first) std::reverse(seen.begin(), seen.end());
    EXPECT_EQ(seen, ids);
  }
  EXPECT_EQ(list({"a"}, {.purpose = "other"})->items.size(), 3U);
}

TEST_F(FileTest, RemovedMeansGone) {
  SKEIN_SQLITE_ALONE();
  const auto file = upload(*store_, "a", "text");
  EXPECT_EQ(contents(), 1U);
  ASSERT_TRUE(remove(file->id, {"a"}).ok());
  EXPECT_EQ(contents(), 0U);
  EXPECT_EQ(get(file->id, {"a"}).code(), Code::kNotFound);
  EXPECT_EQ(remove(file->id, {"a"}).code(), Code::kNotFound);
}

TEST_F(FileTest, TheInputOfALiveBatchStays) {
  const auto file = upload(*store_, "a", testing::input_of(1));
  ASSERT_TRUE(create_batch_of(*store_, "a", file->id).ok());
  EXPECT_EQ(remove(file->id, {"a"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(content_of(*store_, file->id, {"a"}).ok());
}

TEST_F(FileTest, AnUploadThatIsDroppedOrRefusedLeavesNothing) {
  SKEIN_SQLITE_ALONE();
  { auto writer = store_->files().create("a"); }
  EXPECT_EQ(contents(), 0U);
  auto small = store_->files().create("a", 10);
  EXPECT_TRUE((*small)->append("0123456789").ok());
  EXPECT_EQ((*small)->append("x").code(), Code::kOutOfRange);
  EXPECT_EQ((*small)->append("").code(), Code::kOutOfRange);  // once failed, failed
  small->reset();
  EXPECT_EQ(contents(), 0U);
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = ON").ok());
  EXPECT_EQ(upload(*store_, "a", "text").status().code(), Code::kUnavailable);
  EXPECT_EQ(contents(), 0U);
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = OFF").ok());
  EXPECT_TRUE(upload(*store_, "a", "text").ok());
}

TEST_F(FileTest, OrphansGoWhenTheServerStarts) {
  SKEIN_SQLITE_ALONE();
  const auto file = upload(*store_, "a", "text");
  store_.reset();
  const std::string orphan = "state/files/file-0123456789abcdef01234567";
  folder_.write(orphan, "left by a crash");
  folder_.write("state/files/README", "not ours");
  open_store({.state_dir = folder_ / "state", .is_server = false});
  EXPECT_TRUE(std::filesystem::exists(folder_ / orphan));  // a server may be writing it
  store_ = open_state(folder_ / "state");
  EXPECT_FALSE(std::filesystem::exists(folder_ / orphan));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "state/files/README"));
  EXPECT_EQ(*content_of(*store_, file->id, {"a"}), "text");
}

TEST_F(FileTest, AContentThatIsGoneIsDataLoss) {
  SKEIN_SQLITE_ALONE();
  const auto file = upload(*store_, "a", "text");
  std::filesystem::remove(folder_ / ("state/files/" + file->id));
  EXPECT_EQ(content_of(*store_, file->id, {"a"}).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace skein
