// Lines that were running when a server died, models whose load killed it, and time that a calendar
// does not move.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/test_folder.h"
#include "server/http_client.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::create_batch_of;
using ::testing::ElementsAre;
using testing::finish;
using ::testing::HasSubstr;
using testing::input_of;
using testing::integer_of;
using ::testing::IsEmpty;
using testing::sql;
using testing::upload;

class AttemptsTest : public ::testing::Test {
 protected:
  AttemptsTest() { open(); }

  void open() {
    store_ = testing::open_store({.state_dir = folder_ / "state",
                                  .group_window_us = 0,
                                  .unix_time_s = [this] { return now_s_.load(); }});
    runner_ = std::make_unique<BatchRunner>(*store_, clock_, testing::no_models);
  }
  // An orderly stop and a new start.
  void restart() {
    runner_.reset();
    store_.reset();
    open();
  }
  // The marks are put back that a stop has taken away: what a kill -9 leaves.
  void die() {
    std::vector<std::pair<int64_t, int64_t>> marks;
    for (int64_t line = 1; line <= 9; ++line) {
      const auto query = fmt::format(
          "SELECT coalesce(max(CASE WHEN epoch IS NULL THEN -1 ELSE alone END), -1) FROM "
          "batch_lines WHERE line = {}",
          line);
      marks.emplace_back(line, integer_of(*store_, query));
    }
    runner_.reset();
    for (const auto& [line, mark] : marks) {
      ASSERT_TRUE(
          sql(*store_, fmt::format("UPDATE batch_lines SET epoch = {}, alone = {} WHERE line = {}",
                                   mark < 0 ? "NULL" : "0", std::max<int64_t>(mark, 0), line))
              .ok());
    }
    store_.reset();
    open();
  }
  std::vector<BatchLine> next(size_t n) {
    auto work = runner_->next_lines(n);
    SKEIN_CHECK(work.ok(), "{}", work.message());
    return std::move(*work);
  }
  std::vector<int64_t> numbers(size_t n) {
    std::vector<int64_t> all;
    for (last_ = next(n); const BatchLine& line : last_) all.push_back(line.id.line);
    return all;
  }
  std::string start(int lines) {
    const auto file = upload(*store_, "a", input_of(lines));
    const std::string id = create_batch_of(*store_, "a", file->id)->id;
    while (get(id).status == BatchStatus::kValidating) next(0);
    return id;
  }
  BatchRecord get(const std::string& id) { return *batch_of(*store_, id, {"a"}); }

  testing::TestFolder folder_;
  std::atomic<int64_t> now_s_{1'000'000};
  ManualClock clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BatchRunner> runner_;
  std::vector<BatchLine> last_;
};

TEST_F(AttemptsTest, WhatRanAtADeathRunsAloneAndThenTheOthers) {
  start(6);
  EXPECT_THAT(numbers(3), ElementsAre(1, 2, 3));
  ASSERT_TRUE(finish(*runner_, last_[1], 200, "{}").ok());
  die();
  for (const int64_t line : {1, 3}) {
    const auto alone = next(3);
    ASSERT_EQ(alone.size(), 1U);
    EXPECT_EQ(alone[0].id.line, line);
    EXPECT_THAT(numbers(3), IsEmpty());  // nothing beside it
    ASSERT_TRUE(finish(*runner_, alone[0], 200, "{}").ok());
  }
  EXPECT_THAT(numbers(3), ElementsAre(4, 5, 6));
}

TEST_F(AttemptsTest, ALineThatWasAloneAtTwoDeathsFails) {
  const std::string id = start(3);
  EXPECT_THAT(numbers(2), ElementsAre(1, 2));
  die();
  EXPECT_THAT(numbers(2), ElementsAre(1));
  die();
  EXPECT_EQ(integer_of(*store_, "SELECT alone_deaths FROM batch_lines WHERE line = 1"), 1);
  EXPECT_THAT(numbers(2), ElementsAre(1));
  die();
  EXPECT_EQ(get(id).failed_lines, 1U);
  EXPECT_EQ(integer_of(*store_, "SELECT status_code FROM batch_lines WHERE line = 1"), 500);
  EXPECT_EQ(integer_of(*store_,
                       "SELECT count(*) FROM batch_lines WHERE line = 1 AND body LIKE "
                       "'%request_crashed_server%'"),
            1);
  EXPECT_THAT(numbers(2), ElementsAre(2));  // was there at the first
  ASSERT_TRUE(finish(*runner_, last_[0], 200, "{}").ok());
  EXPECT_THAT(numbers(2), ElementsAre(3));  // nobody is suspect any more
  EXPECT_EQ(integer_of(*store_, "SELECT deaths FROM batch_lines WHERE line = 2"), 1);
}

TEST_F(AttemptsTest, ALineThatWasThereAtThreeDeathsFails) {
  const std::string id = start(2);
  for (int death = 0; death < 3; ++death) {
    EXPECT_EQ(get(id).failed_lines, 0U);
    next(0);
    ASSERT_TRUE(sql(*store_, "UPDATE batch_lines SET epoch = 0 WHERE line = 2").ok());
    die();
  }
  EXPECT_EQ(get(id).failed_lines, 1U);
  EXPECT_EQ(integer_of(*store_, "SELECT status_code FROM batch_lines WHERE line = 2"), 500);
}

TEST_F(AttemptsTest, AnOrderlyStopAndADrainCountNothing) {
  start(4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(numbers(4), ElementsAre(1, 2, 3, 4));
    restart();
  }
  EXPECT_THAT(numbers(4), ElementsAre(1, 2, 3, 4));
  runner_->forget_running();
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batch_lines WHERE epoch IS NOT NULL"), 0);
  die();
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batch_lines WHERE deaths != 0"), 0);
}

TEST_F(AttemptsTest, AMachineThatWasStartedAnewBlamesNoLine) {
  SKEIN_SQLITE_ALONE();
  start(2);
  EXPECT_THAT(numbers(2), ElementsAre(1, 2));
  ASSERT_TRUE(sql(*store_, "UPDATE meta SET value = x'00' WHERE name = 'boot_id'").ok());
  die();
  EXPECT_THAT(numbers(2), ElementsAre(1, 2));
}

TEST_F(AttemptsTest, ASuspectThatRestsHoldsUpNobody) {
  start(2);
  EXPECT_THAT(numbers(1), ElementsAre(1));
  die();
  const std::string other = start(1);
  EXPECT_THAT(numbers(2), ElementsAre(1));
  runner_->return_line(last_[0].id, 10 * kUsPerSecond);
  const auto work = next(2);
  ASSERT_EQ(work.size(), 1U);
  EXPECT_EQ(work[0].batch, other);
  clock_.advance(11 * kUsPerSecond);
  EXPECT_THAT(numbers(2), IsEmpty());  // waits for what runs
  ASSERT_TRUE(finish(*runner_, work[0], 200, "{}").ok());
  EXPECT_THAT(numbers(2), ElementsAre(1));
}

TEST_F(AttemptsTest, ACalendarThatJumpsExpiresNothing) {
  const std::string id = start(1);
  now_s_ += 400 * 24 * 3600;
  next(0);
  EXPECT_EQ(get(id).status, BatchStatus::kInProgress);
  now_s_ = 0;
  next(0);
  EXPECT_EQ(get(id).status, BatchStatus::kInProgress);
}

TEST_F(AttemptsTest, LifetimeIsCountedAcrossRestarts) {
  const std::string id = start(1);
  clock_.advance(20 * 3600 * kUsPerSecond);
  next(0);
  EXPECT_EQ(integer_of(*store_, "SELECT served_s FROM batches"), 20 * 3600);
  restart();
  next(0);
  clock_.advance(3 * 3600 * kUsPerSecond);
  next(0);
  EXPECT_EQ(get(id).status, BatchStatus::kInProgress);
  clock_.advance(3600 * kUsPerSecond);
  next(0);
  next(0);
  EXPECT_NE(get(id).status, BatchStatus::kInProgress);
}

TEST_F(AttemptsTest, ValidationHoldsUpNeitherOtherBatchesNorTheEnd) {
  start(3);
  std::string big;
  const std::string padding(8'000, 'x');
  for (int i = 0; i < 2'000; ++i) {
    big += fmt::format(R"({{"custom_id": "c{}", "method": "POST", "url": "/v1/chat/completions", )"
                       R"("body": {{"x": "{}"}}}})"
                       "\n",
                       i, padding);
  }
  const auto file = upload(*store_, "b", big);
  const auto is_validating = [&](const std::string& id) {
    return batch_of(*store_, id, {"b"})->status == BatchStatus::kValidating;
  };
  std::string id;
  bool seen = false;  // that the call came back first; a machine that sleeps here may miss it
  for (int i = 0; i < 5 && !seen; ++i) {
    id = create_batch_of(*store_, "b", file->id)->id;
    next(0);
    seen = is_validating(id);
  }
  EXPECT_TRUE(seen);
  EXPECT_THAT(numbers(1), ElementsAre(1));
  restart();
  while (is_validating(id)) next(0);
  EXPECT_EQ(batch_of(*store_, id, {"b"})->total_lines, 2'000U);
}

TEST_F(AttemptsTest, LinesOfAValidationThatDiedAreDoneAgain) {
  const auto file = upload(*store_, "a", input_of(5));
  const std::string id = create_batch_of(*store_, "a", file->id)->id;
  // As it is after a death between two pieces; the second is of some other reading of the file.
  ASSERT_TRUE(
      sql(*store_, "INSERT INTO batch_lines (batch, line, first_byte, bytes) VALUES (1, 2, 7, 7)")
          .ok());
  ASSERT_TRUE(
      sql(*store_, "INSERT INTO batch_lines (batch, line, first_byte, bytes) VALUES (1, 99, 7, 7)")
          .ok());
  while (get(id).status == BatchStatus::kValidating) next(0);
  EXPECT_EQ(get(id).total_lines, 5U);
  EXPECT_THAT(numbers(9), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(AttemptsTest, AModelWhoseLoadKilledTheServerIsQuarantined) {
  const std::string model = folder_.write("model.gguf", "bytes");
  const std::string other = folder_.write("other.gguf", "bytes");
  ASSERT_TRUE(store_->quarantine().begin_load(other).ok());
  store_->quarantine().end_load(other);
  ASSERT_TRUE(store_->quarantine().begin_load(model).ok());
  restart();
  EXPECT_TRUE(store_->quarantine().begin_load(other).ok());
  store_->quarantine().end_load(other);
  const Status refused = store_->quarantine().begin_load(model);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("quarantined"));
  restart();
  EXPECT_EQ(store_->quarantine().begin_load(model).code(), Code::kDataLoss);  // still
  folder_.write("model.gguf", "other bytes");
  EXPECT_TRUE(store_->quarantine().begin_load(model).ok());
  restart();
  EXPECT_EQ(store_->quarantine().begin_load(model).code(), Code::kDataLoss);
  store_->quarantine().forgive(model);
  EXPECT_TRUE(store_->quarantine().begin_load(model).ok());
  store_->quarantine().end_all_loads();
  restart();
  EXPECT_TRUE(store_->quarantine().begin_load(model).ok());
}

TEST_F(AttemptsTest, ANoteThatCouldNotBeRemovedIsRemovedLater) {
  SKEIN_SQLITE_ALONE();
  const std::string model = folder_.write("model.gguf", "bytes");
  ASSERT_TRUE(store_->quarantine().begin_load(model).ok());
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = ON").ok());
  store_->quarantine().end_load(model);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM model_loads"), 1);
  store_->quarantine().forgive("/another");  // after it in the queue: end_load() has failed by now
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = OFF").ok());
  EXPECT_TRUE(testing::eventually(
      [&] { return integer_of(*store_, "SELECT count(*) FROM model_loads") == 0; }));
  restart();
  EXPECT_TRUE(store_->quarantine().begin_load(model).ok());
}

}  // namespace
}  // namespace skein
