#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "server/batch/batch_fixture.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::cancel;
using testing::content_of;
using testing::create_batch_of;
using ::testing::ElementsAre;
using testing::finish;
using testing::input_of;
using testing::integer_of;
using testing::sql;
using testing::upload;
using Json = nlohmann::json;

TEST_F(BatchTest, RunsFromCreatedToCompleted) {
  const std::string id = start("a", input_of(5));
  EXPECT_EQ(status(id), "in_progress");
  const auto work = lines(10);
  EXPECT_THAT(numbers(work), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(work[1].owner, "a");
  EXPECT_EQ(work[1].endpoint, "/v1/chat/completions");
  EXPECT_EQ(Json::parse(work[1].text)["body"]["line"], 2);
  EXPECT_TRUE(lines(10).empty());  // all are out

  for (const int i : {4, 2, 0, 3, 1}) {  // whatever the order of the ends
    const int code = i == 2 ? 400 : 200;
    ASSERT_TRUE(finish(*runner_, work[i], code, fmt::format("{{\n\"i\": {}}}", i)).ok());
  }
  EXPECT_EQ(get(id).completed_lines, 4U);
  EXPECT_EQ(get(id).failed_lines, 1U);
  now_s_ += 60;
  settle();
  const BatchRecord batch = get(id);
  EXPECT_EQ(batch.status, BatchStatus::kCompleted);
  EXPECT_EQ(batch.total_lines, 5U);
  EXPECT_EQ(batch.at_s(BatchStatus::kValidating), 1'000'000);
  EXPECT_EQ(batch.at_s(BatchStatus::kCompleted), 1'000'060);
  EXPECT_EQ(batch.at_s(BatchStatus::kFailed), 0);
  EXPECT_EQ(batch.expires_at_s, 1'000'000 + 24 * 3600);

  const auto output = jsonl(batch.output_file);
  ASSERT_EQ(output.size(), 4U);
  std::vector<std::string> ids;
  for (const Json& line : output) ids.push_back(line["custom_id"]);
  EXPECT_THAT(ids, ElementsAre("c1", "c2", "c4", "c5"));
  EXPECT_EQ(output[1]["response"]["status_code"], 200);
  EXPECT_EQ(output[1]["response"]["request_id"], "req");
  EXPECT_EQ(output[1]["response"]["body"]["i"], 1);
  EXPECT_TRUE(output[1]["error"].is_null());
  const auto errors = jsonl(batch.error_file);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0]["custom_id"], "c3");
  EXPECT_EQ(errors[0]["response"]["status_code"], 400);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batch_lines"), 0);
}

TEST_F(BatchTest, FilesOfABatchBelongToItsOwner) {
  const std::string id = start("a", input_of(1));
  ASSERT_TRUE(finish(*runner_, lines(1)[0], 200, "{}").ok());
  settle();
  const BatchRecord batch = get(id);
  EXPECT_TRUE(batch.error_file.empty());
  EXPECT_TRUE(content_of(*store_, batch.output_file, {"a"}).ok());
  EXPECT_EQ(content_of(*store_, batch.output_file, {"b"}).status().code(), Code::kNotFound);
  EXPECT_EQ(batch_of(*store_, id, {"b"}).status().code(), Code::kNotFound);
  EXPECT_EQ(cancel(*store_, id, {"b"}).status().code(), Code::kNotFound);
  const auto list = [this](const Scope& scope) {
    return await<Page<BatchRecord>>([&](Done<Page<BatchRecord>> done) {
             store_->batches().list(scope, {}, std::move(done));
           })
        ->items.size();
  };
  EXPECT_EQ(list({"a"}), 1U);
  EXPECT_EQ(list({"b"}), 0U);
  EXPECT_EQ(list({"", false}), 0U);
  EXPECT_EQ(list({"b", true}), 1U);
}

TEST_F(BatchTest, ALineHasOneResult) {
  start("a", input_of(2));
  const auto work = lines(2);
  ASSERT_TRUE(finish(*runner_, work[0], 200, R"({"first": 1})").ok());
  EXPECT_EQ(finish(*runner_, work[0], 500, "{}").code(), Code::kNotFound);
  const BatchRecord batch = get(work[0].batch);
  EXPECT_EQ(batch.completed_lines, 1U);
  ASSERT_TRUE(finish(*runner_, work[1], 200, "{}").ok());
  settle();
  EXPECT_EQ(jsonl(get(batch.id).output_file)[0]["response"]["body"]["first"], 1);
}

TEST_F(BatchTest, ResumesWithEveryFinishedLineKept) {
  const std::string id = start("a", input_of(200));
  for (const BatchLine& line : lines(150)) {
    if (line.id.line % 3 == 0) continue;
    ASSERT_TRUE(finish(*runner_, line, 200, "{}").ok());
  }
  reopen();
  EXPECT_EQ(get(id).completed_lines, 100U);
  const auto rest = lines(1000);
  EXPECT_EQ(rest.size(), 100U);
  EXPECT_EQ(rest[0].id.line, 3);
  for (const BatchLine& line : rest) ASSERT_TRUE(finish(*runner_, line, 200, "{}").ok());
  settle();
  EXPECT_EQ(jsonl(get(id).output_file).size(), 200U);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM batches WHERE open = 1"), 0);
}

TEST_F(BatchTest, AWhollyBadInputFailsTheBatch) {
  const std::string id = start("a", "no json\n");
  const BatchRecord batch = get(id);
  EXPECT_EQ(batch.status, BatchStatus::kFailed);
  ASSERT_EQ(batch.errors.size(), 1U);
  EXPECT_EQ(batch.errors[0].line, 1);
  EXPECT_EQ(batch.errors[0].code, "invalid_json_line");
  EXPECT_EQ(batch.at_s(BatchStatus::kFailed), 1'000'000);
  EXPECT_TRUE(lines(10).empty());
  EXPECT_EQ(cancel(*store_, id, {"a"}).status().code(), Code::kInvalidArgument);
}

TEST_F(BatchTest, ABrokenLineFailsAlone) {
  const std::string id = start("a", input_of(2) + "broken\n");
  EXPECT_EQ(get(id).failed_lines, 1U);
  EXPECT_EQ(get(id).total_lines, 3U);
  for (const BatchLine& line : lines(10)) ASSERT_TRUE(finish(*runner_, line, 200, "{}").ok());
  settle();
  EXPECT_EQ(status(id), "completed");
  EXPECT_EQ(jsonl(get(id).output_file).size(), 2U);
  const auto errors = jsonl(get(id).error_file);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_TRUE(errors[0]["custom_id"].is_null());
  EXPECT_EQ(errors[0]["response"]["body"]["error"]["code"], "invalid_json_line");
}

TEST_F(BatchTest, CancelKeepsFinishedLinesAndTakesNoMore) {
  const std::string id = start("a", input_of(4));
  const auto work = lines(3);
  const auto request = std::make_shared<FakeRequest>();
  runner_->set_request(work[2].id, request);
  ASSERT_TRUE(finish(*runner_, work[1], 200, "{}").ok());
  EXPECT_EQ(cancel(*store_, id, {"a"})->status, BatchStatus::kCancelling);
  EXPECT_EQ(cancel(*store_, id, {"a"})->status, BatchStatus::kCancelling);  // twice is once
  EXPECT_EQ(finish(*runner_, work[0], 200, "{}").code(), Code::kNotFound);
  EXPECT_FALSE(request->cancelled);
  EXPECT_TRUE(lines(10).empty());
  EXPECT_TRUE(request->cancelled);
  EXPECT_EQ(runner_->running(), 0U);
  settle();
  const BatchRecord batch = get(id);
  EXPECT_EQ(batch.status, BatchStatus::kCancelled);
  EXPECT_EQ(batch.completed_lines, 1U);
  EXPECT_EQ(jsonl(batch.output_file).size(), 1U);
  EXPECT_TRUE(batch.error_file.empty());
  EXPECT_EQ(cancel(*store_, id, {"a"})->status, BatchStatus::kCancelled);
}

TEST_F(BatchTest, CancelBeforeValidation) {
  const auto file = upload(*store_, "a", input_of(2));
  const auto batch = create_batch_of(*store_, "a", file->id);
  ASSERT_TRUE(cancel(*store_, batch->id, {"a"}).ok());
  settle();
  EXPECT_EQ(status(batch->id), "cancelled");
  EXPECT_TRUE(get(batch->id).output_file.empty());
}

TEST_F(BatchTest, ExpiresAfterADay) {
  const std::string id = start("a", input_of(3));
  const auto work = lines(2);
  ASSERT_TRUE(finish(*runner_, work[0], 200, "{}").ok());
  clock_.advance((24 * 3600 - 1) * kUsPerSecond);
  settle();
  EXPECT_EQ(status(id), "in_progress");
  clock_.advance(kUsPerSecond);
  lines(0);
  EXPECT_EQ(status(id), "finalizing");
  EXPECT_EQ(finish(*runner_, work[1], 200, "{}").code(), Code::kNotFound);
  reopen();  // the outcome survives
  settle();
  const BatchRecord batch = get(id);
  EXPECT_EQ(batch.status, BatchStatus::kExpired);
  EXPECT_EQ(jsonl(batch.output_file).size(), 1U);
  const auto errors = jsonl(batch.error_file);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_EQ(errors[0]["custom_id"], "c2");
  EXPECT_TRUE(errors[0]["response"].is_null());
  EXPECT_EQ(errors[0]["error"]["code"], "batch_expired");
}

TEST_F(BatchTest, OwnersTakeTurnsAndTheirBatchesQueue) {
  start("a", input_of(5));
  const std::string second = start("a", input_of(5));
  const std::string other = start("b", input_of(2));
  std::map<std::string, int> by_owner;
  for (const BatchLine& line : lines(4)) ++by_owner[line.owner];
  EXPECT_EQ(by_owner["a"], 2);
  EXPECT_EQ(by_owner["b"], 2);
  for (const BatchLine& line : lines(3)) EXPECT_NE(line.batch, second);
  EXPECT_EQ(lines(100).size(), 5U);
}

TEST_F(BatchTest, ReturnedLinesComeAgain) {
  const std::string id = start("a", input_of(3));
  const auto work = lines(2);
  runner_->return_line(work[1].id);
  EXPECT_THAT(numbers(lines(10)), ElementsAre(2, 3));
  runner_->return_line(work[0].id);
  EXPECT_EQ(finish(*runner_, work[0], 200, "{}").code(), Code::kNotFound);  // it is nobody's
  EXPECT_THAT(numbers(lines(10)), ElementsAre(1));
  EXPECT_EQ(get(id).completed_lines, 0U);
}

TEST_F(BatchTest, ABatchThatRestsHoldsUpNoOther) {
  const std::string tired = start("a", input_of(3));
  const std::string other = start("a", input_of(2));
  const auto work = lines(2);
  ASSERT_EQ(work[0].batch, tired);
  runner_->return_line(work[0].id, 5 * kUsPerSecond);
  runner_->return_line(work[1].id, 1 * kUsPerSecond);
  for (const BatchLine& line : lines(10)) EXPECT_EQ(line.batch, other);
  clock_.advance(4 * kUsPerSecond);
  EXPECT_TRUE(lines(10).empty()) << "the longest rest counts";
  clock_.advance(1 * kUsPerSecond);
  EXPECT_THAT(numbers(lines(10)), ::testing::UnorderedElementsAre(1, 2, 3));
}

TEST_F(BatchTest, AStoreThatRefusesAResultHandsTheLineOutAgain) {
  SKEIN_SQLITE_ALONE();
  const std::string id = start("a", input_of(2));
  const auto work = lines(2);
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = ON").ok());
  EXPECT_EQ(finish(*runner_, work[0], 200, "{}").code(), Code::kUnavailable);
  EXPECT_TRUE(lines(10).empty());  // not in a tight loop
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = OFF").ok());
  ASSERT_TRUE(finish(*runner_, work[1], 200, "{}").ok());
  clock_.advance(3 * kUsPerSecond);
  const auto again = lines(10);
  ASSERT_THAT(numbers(again), ElementsAre(1));
  ASSERT_TRUE(finish(*runner_, again[0], 200, "{}").ok());
  settle();
  EXPECT_EQ(status(id), "completed");
}

TEST_F(BatchTest, FinalizingWaitsForTheDiskAndHappensOnce) {
  SKEIN_SQLITE_ALONE();
  const std::string id = start("a", input_of(1));
  ASSERT_TRUE(finish(*runner_, lines(1)[0], 200, "{}").ok());
  lines(0);
  ASSERT_EQ(status(id), "finalizing");
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = ON").ok());
  lines(0);
  EXPECT_EQ(status(id), "finalizing");
  ASSERT_TRUE(sql(*store_, "PRAGMA query_only = OFF").ok());
  lines(0);
  EXPECT_EQ(status(id), "finalizing");  // waits a little
  clock_.advance(3 * kUsPerSecond);
  settle();
  EXPECT_EQ(status(id), "completed");
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM files"), 2);
  const std::filesystem::directory_iterator contents(folder_ / "state/files");
  EXPECT_EQ(std::distance(begin(contents), end(contents)), 2);
}

TEST_F(BatchTest, AnInputThatIsGoneHarmsItsBatchOnly) {
  SKEIN_SQLITE_ALONE();
  const auto file = upload(*store_, "a", input_of(1));
  const auto lost = create_batch_of(*store_, "a", file->id);
  std::filesystem::remove(folder_ / ("state/files/" + file->id));
  const std::string good = start("b", input_of(1));
  EXPECT_EQ(status(lost->id), "failed");
  EXPECT_EQ(get(lost->id).errors[0].code, "input_file_missing");
  EXPECT_EQ(lines(5).size(), 1U);

  const std::string cut = start("c", input_of(2));
  std::filesystem::resize_file(folder_ / ("state/files/" + get(cut).input_file), 3);
  EXPECT_TRUE(lines(5).empty());
  settle();
  EXPECT_EQ(status(cut), "completed");
  EXPECT_EQ(get(cut).failed_lines, 2U);
  EXPECT_EQ(status(good), "in_progress");
}

TEST_F(BatchTest, WhatABatchNeedsToBeginWith) {
  const auto file = upload(*store_, "a", input_of(1), "assistants");
  EXPECT_EQ(create_batch_of(*store_, "a", file->id).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(create_batch_of(*store_, "a", "file-none").status().code(), Code::kNotFound);
  const auto good = upload(*store_, "a", input_of(1));
  for (int i = 0; i < kMaxLiveBatches; ++i) {
    ASSERT_TRUE(create_batch_of(*store_, "a", good->id).ok());
  }
  EXPECT_EQ(create_batch_of(*store_, "a", good->id).status().code(), Code::kOutOfRange);
}

TEST_F(BatchTest, RevokingAKeyCancelsItsBatches) {
  KeyRecord key;
  key.id = "0123456789abcdef";
  key.name = "a";
  const auto added =
      await<KeyRecord>([&](Done<KeyRecord> done) { store_->keys().add(key, std::move(done)); });
  ASSERT_TRUE(added.ok());
  const std::string mine = start(key.id, input_of(1));
  const std::string other = start("b", input_of(1));
  ASSERT_TRUE(await<KeyRecord>([&](Done<KeyRecord> done) {
                store_->keys().revoke("a", std::move(done));
              }).ok());
  settle();
  EXPECT_EQ(status(mine), "cancelled");
  EXPECT_EQ(status(other), "in_progress");
}

TEST_F(BatchTest, LinesEndOnManyThreads) {
  const std::string id = start("a", input_of(120));
  std::atomic<int> done{0};
  while (done < 120) {
    std::vector<std::thread> threads;
    for (const BatchLine& line : lines(16)) {
      threads.emplace_back([&, line] {
        runner_->finish_line(line.id, {200, "r", "{}"},
                             [&done](const Status& status) { done += status.ok() ? 1 : 0; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  settle();
  EXPECT_EQ(get(id).completed_lines, 120U);
  EXPECT_EQ(status(id), "completed");
}

}  // namespace
}  // namespace skein
