// Limits of files, the floor of free room, and the ballast.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::create_batch_of;
using ::testing::HasSubstr;
using testing::input_of;
using testing::integer_of;
using testing::open_store;
using testing::upload;

class SpaceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(const FileLimits& limits, uint64_t min_free_bytes = 0) {
    return open_store({.state_dir = folder_ / "state",
                       .group_window_us = 0,
                       .min_free_bytes = min_free_bytes,
                       .file_limits = limits});
  }
  Status remove(Store& store, const std::string& id) {
    return await<FileRecord>([&](Done<FileRecord> done) {
             store.files().remove(id, {"", true}, std::move(done));
           })
        .status();
  }
  uint64_t free_bytes() const {
    struct statvfs disk = {};
    SKEIN_CHECK(::statvfs(folder_.path().c_str(), &disk) == 0, "statvfs failed");
    return disk.f_bavail * disk.f_frsize;
  }

  testing::TestFolder folder_;
};

TEST_F(SpaceTest, AKeyMayKeepSoManyFiles) {
  auto store = open({.files_per_key = 2});
  const auto first = upload(*store, "a", "x");
  ASSERT_TRUE(upload(*store, "a", "x").ok());
  const auto third = upload(*store, "a", "x");
  EXPECT_EQ(third.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(third.message(), HasSubstr("2 files, and 2 is the most"));
  EXPECT_TRUE(upload(*store, "b", "x").ok());
  ASSERT_TRUE(remove(*store, first->id).ok());
  EXPECT_TRUE(upload(*store, "a", "x").ok());
  store.reset();
  store = open({.files_per_key = 2});  // counted anew from the rows
  EXPECT_EQ(upload(*store, "a", "x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(store->file_budget().use_of("a").files, 2U);
}

TEST_F(SpaceTest, AKeyMayKeepSoManyBytesWhileTheyAreWrittenToo) {
  const auto store = open({.bytes_per_key = 1'000'000});
  const std::string half(500'000, 'x');
  auto unfinished = store->files().create("a");
  ASSERT_TRUE((*unfinished)->append(half).ok());
  ASSERT_TRUE((*unfinished)->flush().ok());
  EXPECT_EQ(upload(*store, "a", half + "x").status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(upload(*store, "a", half).ok());
  EXPECT_EQ(upload(*store, "a", "x").status().code(), Code::kInvalidArgument);
  unfinished->reset();  // gives its room back
  EXPECT_TRUE(upload(*store, "a", half).ok());
  EXPECT_EQ(store->file_budget().use_of("a").bytes, 1'000'000U);
}

TEST_F(SpaceTest, AllKeysTogetherMayKeepSoManyBytes) {
  const auto store = open({.bytes = 1000});
  ASSERT_TRUE(upload(*store, "a", std::string(600, 'x')).ok());
  EXPECT_EQ(upload(*store, "b", std::string(600, 'x')).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(upload(*store, "b", std::string(400, 'x')).ok());
}

TEST_F(SpaceTest, AllKeysTogetherMayKeepSoManyFiles) {
  auto store = open({.files = 2});
  const auto first = upload(*store, "a", "x");
  ASSERT_TRUE(upload(*store, "b", "x").ok());
  const auto third = upload(*store, "c", "x");
  EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.message(), HasSubstr("all keys have 2 files, and 2 is the most"));
  EXPECT_EQ(store->file_budget().check("c").code(), Code::kResourceExhausted);  // no batches either
  store.reset();
  store = open({.files = 2});  // counted anew from the rows
  EXPECT_EQ(upload(*store, "c", "x").status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(remove(*store, first->id).ok());
  EXPECT_TRUE(upload(*store, "c", "x").ok());
}

// A disk with room for bytes and none for names is full.
TEST_F(SpaceTest, ADiskMayRunOutOfFiles) {
  StateSpace space(folder_.path(), 0);
  EXPECT_TRUE(space.admit(0).ok());
  EXPECT_FALSE(space.is_low());
  if (space.free_files() == UINT64_MAX) return;  // this disk has no limit of them
  StateSpace low(folder_.path(), 0, space.free_files() * 2);
  EXPECT_TRUE(low.is_low());
  const Status refused = low.admit(0);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("more files fit on the disk"));
}

TEST_F(SpaceTest, OutputsOfBatchesCountAndAreNeverRefused) {
  const auto store = open({.files_per_key = 1});
  const auto file = upload(*store, "a", input_of(1));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(create_batch_of(*store, "a", file->id).ok());
  const SystemClock clock;
  BatchRunner runner(*store, clock, testing::no_models);
  std::vector<BatchLine> lines;
  while (lines.empty()) lines = *runner.next_lines(1);
  ASSERT_TRUE(testing::finish(runner, lines[0], 200, "{}").ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(runner.next_lines(1).ok());
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM files WHERE purpose = 'batch_output'"), 1);
  EXPECT_EQ(store->file_budget().use_of("a").files, 2U);
  EXPECT_EQ(store->file_budget().use_of("a").bytes,
            static_cast<uint64_t>(integer_of(*store, "SELECT sum(bytes) FROM files")));
  EXPECT_EQ(upload(*store, "a", "x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(store->file_budget().check("a").code(), Code::kInvalidArgument);  // no more batches
}

TEST_F(SpaceTest, BelowTheFloorNothingIsUploaded) {
  const auto store = open({}, free_bytes() * 2);
  EXPECT_TRUE(store->space().is_low());
  const auto refused = upload(*store, "a", "x");
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("must stay free"));
  EXPECT_EQ(store->file_budget().check("a").code(), Code::kResourceExhausted);
  EXPECT_EQ(store->file_budget().use_of("a").files, 0U);
}

TEST_F(SpaceTest, TheBallastHasRealBlocksAndIsMadeAgain) {
  StateSpace space(folder_.path(), 0);
  space.restore_ballast();
  const std::string ballast = folder_ / "ballast";
  struct stat info = {};
  ASSERT_EQ(::stat(ballast.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 4 << 20);
  EXPECT_GE(info.st_blocks * 512, info.st_size);
  EXPECT_TRUE(space.release_ballast());
  EXPECT_FALSE(std::filesystem::exists(ballast));
  EXPECT_FALSE(space.release_ballast());
  space.restore_ballast();
  EXPECT_TRUE(std::filesystem::exists(ballast));
  EXPECT_FALSE(space.is_reserved());
}

TEST_F(SpaceTest, OldBatchesAreForgottenAndLiveOnesAreNot) {
  const auto store = open({});
  const auto file = upload(*store, "a", input_of(1));
  const std::string live = create_batch_of(*store, "a", file->id)->id;
  ASSERT_TRUE(
      testing::sql(*store, fmt::format("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                                       "FROM n WHERE i < {}) INSERT INTO batches (id, owner, "
                                       "endpoint, input_file, metadata, status, open, expires_at, "
                                       "validating_at) SELECT 'b' || i, 'a', '', '', '', "
                                       "'completed', 0, 0, 0 FROM n",
                                       kMaxKeptBatches))
          .ok());
  ASSERT_TRUE(create_batch_of(*store, "a", file->id).ok());
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batches"), kMaxKeptBatches);
  EXPECT_TRUE(testing::batch_of(*store, live, {"a"}).ok());
  EXPECT_EQ(testing::batch_of(*store, "b1", {"a"}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace skein
