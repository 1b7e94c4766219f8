// The verbs of batches: claims, epochs and pieces.
#include "server/store/batch_store.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::cancel;
using testing::create_batch_of;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::integer_of;
using ::testing::IsEmpty;
using testing::open_state;
using testing::upload;

class BatchStoreTest : public ::testing::Test {
 protected:
  BatchStoreTest() { reopen(); }

  // As after a kill: what was claimed stays so.
  void reopen() {
    store_.reset();
    store_ = open_state(folder_ / "state");
  }
  BatchStore& batches() { return store_->batches(); }

  // The number of a new batch that is being validated.
  int64_t make() {
    const auto file = upload(*store_, "a", "x");
    last_id_ = create_batch_of(*store_, "a", file->id)->id;
    return batches().open_batches()->back().seq;
  }
  static std::vector<InputLine> input(int64_t lines) {
    std::vector<InputLine> all(static_cast<size_t>(lines));
    for (int64_t i = 0; i < lines; ++i) all[static_cast<size_t>(i)].line = i + 1;
    return all;
  }
  // One that is in progress.
  int64_t start(int64_t lines) {
    const int64_t batch = make();
    start(batch, input(lines));
    return batch;
  }
  void start(int64_t batch, const std::vector<InputLine>& lines) {
    SKEIN_CHECK(batches().insert_lines(store_->epoch(), batch, lines).ok(), "no lines");
    SKEIN_CHECK(batches().begin(store_->epoch(), batch).ok(), "it does not begin");
  }
  static std::vector<int64_t> numbers(const Result<std::vector<LinePlace>>& places) {
    SKEIN_CHECK(places.ok(), "{}", places.message());
    std::vector<int64_t> lines;
    for (const LinePlace& place : *places) lines.push_back(place.id.line);
    return lines;
  }
  std::vector<int64_t> claim(int64_t epoch, const std::vector<LineShare>& shares,
                             const std::vector<std::string>& models = {}) {
    return numbers(batches().claim_lines(epoch, shares, models));
  }
  Code finish(int64_t epoch, const LineId& line, int32_t status_code = 200) {
    return await_status([&](DoneStatus done) {
             batches().finish_line(epoch, line, {status_code, "r", "{}"}, std::move(done));
           })
        .code();
  }
  int64_t lines_left() { return integer_of(*store_, "SELECT count(*) FROM batch_lines"); }

  testing::TestFolder folder_;
  std::unique_ptr<Store> store_;
  std::string last_id_;
};

TEST_F(BatchStoreTest, AClaimMadeTwiceGivesTheSecondNobodysLine) {
  const int64_t batch = start(5);
  const int64_t epoch = store_->epoch();
  EXPECT_THAT(claim(epoch, {{batch, 3}}), ElementsAre(1, 2, 3));
  EXPECT_THAT(claim(epoch, {{batch, 3}}), ElementsAre(4, 5));
  EXPECT_THAT(claim(epoch, {{batch, 3}}), IsEmpty());
  ASSERT_EQ(finish(epoch, {batch, 2}), Code::kOk);
  EXPECT_THAT(claim(epoch, {{batch, 3}}), IsEmpty());
  EXPECT_TRUE(batches().return_lines(epoch, std::vector<LineId>{{batch, 4}, {batch, 1}}).ok());
  EXPECT_THAT(claim(epoch, {{batch, 3}}), ElementsAre(1, 4));
  EXPECT_TRUE(batches().return_all_lines(epoch).ok());
  EXPECT_THAT(claim(epoch, {{batch, 9}}), ElementsAre(1, 3, 4, 5));
}

TEST_F(BatchStoreTest, OneClaimServesSeveralBatches) {
  const int64_t first = start(3);
  const int64_t second = start(3);
  const int64_t validating = make();
  EXPECT_THAT(claim(store_->epoch(), {{first, 2}, {second, 9}, {validating, 1}}),
              ElementsAre(1, 2, 1, 2, 3));
}

TEST_F(BatchStoreTest, AnOldEpochIsFenced) {
  const int64_t batch = start(3);
  const int64_t old = store_->epoch();
  EXPECT_THAT(claim(old, {{batch, 1}}), ElementsAre(1));
  reopen();
  const int64_t epoch = store_->epoch();
  EXPECT_GT(epoch, old);
  const LineId line{batch, 1};
  EXPECT_EQ(finish(old, line), Code::kNotFound) << "nobody has it";
  EXPECT_EQ(batches().claim_lines(old, std::vector<LineShare>{{batch, 3}}, {}).status().code(),
            Code::kNotFound);
  EXPECT_EQ(batches().claim_suspect(old, line).code(), Code::kNotFound);
  ASSERT_TRUE(batches().claim_suspect(epoch, line).ok());
  EXPECT_EQ(finish(old, line), Code::kNotFound) << "another has it";
  EXPECT_TRUE(batches().return_lines(old, std::vector<LineId>{line}).ok());
  EXPECT_TRUE(batches().return_all_lines(old).ok());
  EXPECT_EQ(batches().claim_suspect(epoch, line).code(), Code::kNotFound) << "it has it already";
  EXPECT_EQ(batch_of(*store_, last_id_, {"a"})->completed_lines, 0U);
  EXPECT_EQ(finish(epoch, line), Code::kOk);
  EXPECT_EQ(finish(old, line), Code::kAlreadyExists);
  EXPECT_EQ(batch_of(*store_, last_id_, {"a"})->completed_lines, 1U);
  EXPECT_THAT(claim(epoch, {{batch, 3}}), ElementsAre(2, 3));
}

// The lock of a folder can be lost, with the file it is on. The epoch then tells two servers apart.
TEST_F(BatchStoreTest, AServerThatWasReplacedChangesNothingAnyMore) {
  const int64_t validating = make();
  const std::vector<InputLine> lines = input(3);
  ASSERT_TRUE(batches().insert_lines(store_->epoch(), validating, lines).ok());
  const int64_t running = start(2);
  std::filesystem::remove(folder_ / "state/server.lock");
  const auto successor = open_state(folder_ / "state");
  const int64_t old = store_->epoch();
  ASSERT_GT(successor->epoch(), old);
  const auto refused = [&](int64_t epoch) {
    std::vector<Code> codes;
    const auto note = [&codes](const Status& status) { codes.push_back(status.code()); };
    note(batches().discard_lines(epoch, validating, 1).status());
    note(batches().insert_lines(epoch, validating, input(1)));
    note(batches().begin(epoch, validating));
    note(batches().fail(epoch, validating, {{"code", "message", 0}}));
    note(batches().finalize(epoch, running, BatchStatus::kExpired));
    note(batches().claim_lines(epoch, std::vector<LineShare>{{running, 1}}, {}).status());
    note(batches().claim_suspect(epoch, {running, 1}));
    note(batches().renew(epoch, {{running, 30}}));
    return codes;
  };
  EXPECT_THAT(refused(old), Each(Code::kNotFound));
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batch_lines"), 5);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batches WHERE status = 'validating'"), 1);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batches WHERE status = 'in_progress'"), 1);
  EXPECT_EQ(integer_of(*store_, "SELECT CAST(sum(served_s) AS BIGINT) FROM batches"), 0);

  const int64_t now = successor->epoch();
  ASSERT_TRUE(batches().finalize(now, running, BatchStatus::kCompleted).ok());
  const OpenBatch open = batches().open_batches()->back();
  EXPECT_EQ(batches().end(old, open, BatchStatus::kCompleted, {}, {}).code(), Code::kNotFound);
  ASSERT_TRUE(batches().end(now, open, BatchStatus::kCompleted, {}, {}).ok());
  EXPECT_EQ(batches().drop_lines(old, running, 9).code(), Code::kNotFound);
  EXPECT_EQ(lines_left(), 5);
  ASSERT_TRUE(batches().drop_lines(now, running, 9).ok());
  EXPECT_EQ(lines_left(), 3);
  EXPECT_TRUE(batches().begin(now, validating).ok());
}

TEST_F(BatchStoreTest, LinesGoToServersThatHaveTheirModel) {
  const int64_t batch = make();
  std::vector<InputLine> lines = input(6);
  for (const size_t i : {1, 4}) lines[i].model = "small";
  for (const size_t i : {2, 3}) lines[i].model = "a \"large\"\none";
  start(batch, lines);
  const int64_t epoch = store_->epoch();
  EXPECT_THAT(claim(epoch, {{batch, 2}}, {"small", "other"}), ElementsAre(1, 2));
  EXPECT_THAT(claim(epoch, {{batch, 9}}, {"large"}), ElementsAre(6)) << "what names no model";
  EXPECT_THAT(claim(epoch, {{batch, 9}}, {"a \"large\"\none"}), ElementsAre(3, 4));
  reopen();  // line 5 was nobody's; the others are suspects from here on
  EXPECT_THAT(numbers(batches().suspect_lines({"small"}, 9)), ElementsAre(1, 2, 6));
  EXPECT_THAT(numbers(batches().suspect_lines({}, 9)), ElementsAre(1, 6));
  EXPECT_THAT(claim(store_->epoch(), {{batch, 9}}, {"large"}), IsEmpty());
  EXPECT_THAT(claim(store_->epoch(), {{batch, 9}}, {"small"}), ElementsAre(5));
}

TEST_F(BatchStoreTest, OnlyTheLivingEpochIsRenewed) {
  const int64_t batch = start(1);
  const int64_t old = store_->epoch();
  ASSERT_TRUE(batches().renew(old, {{batch, 30}}).ok());
  EXPECT_EQ(batches().open_batches()->front().served_s, 30);
  reopen();
  EXPECT_EQ(batches().renew(old, {{batch, 30}}).code(), Code::kNotFound);
  EXPECT_EQ(batches().open_batches()->front().served_s, 30);
  ASSERT_TRUE(batches().renew(store_->epoch(), {{batch, 5}}).ok());
  EXPECT_EQ(batches().open_batches()->front().served_s, 35);
  reopen();
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM nodes"), 1);
}

TEST_F(BatchStoreTest, ALineHasOneResult) {
  const int64_t batch = start(3);
  const int64_t epoch = store_->epoch();
  EXPECT_EQ(finish(epoch, {batch, 1}), Code::kNotFound) << "it was not claimed";
  EXPECT_THAT(claim(epoch, {{batch, 2}}), ElementsAre(1, 2));
  EXPECT_EQ(finish(epoch, {batch, 1}, 500), Code::kOk);
  EXPECT_EQ(finish(epoch, {batch, 1}), Code::kAlreadyExists);
  EXPECT_EQ(finish(epoch, {batch, 99}), Code::kNotFound);
  EXPECT_EQ(finish(epoch, {batch + 1, 1}), Code::kNotFound);
  ASSERT_TRUE(cancel(*store_, last_id_, {"a"}).ok());
  EXPECT_EQ(finish(epoch, {batch, 2}), Code::kNotFound);
  const auto record = batch_of(*store_, last_id_, {"a"});
  EXPECT_EQ(record->failed_lines, 1U);
  EXPECT_EQ(record->completed_lines, 0U);
}

TEST_F(BatchStoreTest, LinesComeAndGoInPieces) {
  const int64_t batch = make();
  const int64_t epoch = store_->epoch();
  const std::vector<InputLine> lines = input(1000);
  ASSERT_TRUE(batches().insert_lines(epoch, batch, std::span(lines).first(600)).ok());
  EXPECT_EQ(batch_of(*store_, last_id_, {"a"})->total_lines, 0U) << "it has not begun";
  EXPECT_EQ(*batches().discard_lines(epoch, batch, 512), 512);
  EXPECT_EQ(*batches().discard_lines(epoch, batch, 512), 88);
  EXPECT_EQ(lines_left(), 0);
  for (const size_t from : {0, 500}) {
    ASSERT_TRUE(batches().insert_lines(epoch, batch, std::span(lines).subspan(from, 500)).ok());
  }
  ASSERT_TRUE(batches().begin(epoch, batch).ok());
  EXPECT_EQ(batch_of(*store_, last_id_, {"a"})->total_lines, 1000U);
  EXPECT_EQ(batches().insert_lines(epoch, batch, lines).code(), Code::kNotFound) << "it has begun";
  EXPECT_EQ(batches().discard_lines(epoch, batch, 512).status().code(), Code::kNotFound);
  ASSERT_TRUE(batches().finalize(epoch, batch, BatchStatus::kCompleted).ok());
  ASSERT_TRUE(batches()
                  .end(epoch, batches().open_batches()->front(), BatchStatus::kCompleted, {}, {})
                  .ok());
  for (const int64_t left : {488, 0}) {
    ASSERT_EQ(batches().open_batches()->size(), 1U);
    ASSERT_TRUE(batches().drop_lines(epoch, batch, 512).ok());
    EXPECT_EQ(lines_left(), left);
  }
  EXPECT_TRUE(batches().open_batches()->empty());
}

}  // namespace
}  // namespace skein
