// Answers that the store keeps, and stores that do not.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <semaphore>

#include "server/answer/answer_world.h"
#include "server/http_client.h"
#include "server/store/store_helpers.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

api::AnswerOptions kept(bool stream, const std::string& previous = "") {
  api::AnswerOptions wanted;
  wanted.stream = stream;
  wanted.max_tokens = 16;
  wanted.kept = std::make_shared<const api::KeptTurn>(api::KeptTurn{"[]", previous});
  return wanted;
}

int64_t rows(AnswerWorld& world) {
  return integer_of(world.context->store, "SELECT count(*) FROM responses");
}

TEST(KeptAnswer, IsInTheStoreWhenItsEndIsSent) {
  for (const bool stream : {false, true}) {
    AnswerWorld world;
    world.principal->key_id = "me";
    const auto told = world.ask(kept(stream), api::AnswerKind::kResponse);
    EXPECT_EQ(rows(world), 1);
    EXPECT_EQ(integer_of(world.context->store,
                         "SELECT count(*) FROM responses WHERE owner = 'me' "
                         "AND output LIKE '%Hello%' AND previous IS NULL"),
              1);
    EXPECT_THAT(stream ? told->frames : told->body, HasSubstr(R"("store":true)"));
    EXPECT_EQ(world.log(1).at(0).status, 200);
    EXPECT_EQ(world.memory.used_bytes(), 0U);
    EXPECT_EQ(world.live.size(), 0U);
  }
}

TEST(KeptAnswer, IsWholeWhereTheStoreTakesNothing) {
  for (const bool stream : {false, true}) {
    AnswerWorld world;
    ASSERT_TRUE(sql(world.context->store, "PRAGMA query_only = ON").ok());
    const auto told = world.ask(kept(stream), api::AnswerKind::kResponse);
    EXPECT_FALSE(told->error);
    EXPECT_EQ(told->finished, stream);
    const std::string& text = stream ? told->frames : told->body;
    const size_t end = stream ? text.find("event: response.completed") : 0;
    ASSERT_NE(end, std::string::npos) << text;
    EXPECT_THAT(text.substr(end), HasSubstr(R"("store":false)"));
    EXPECT_THAT(text.substr(end), HasSubstr(R"("text":"Hello")"));
    EXPECT_EQ(world.log(1).at(0).status, 200);
    EXPECT_EQ(rows(world), 0);
    EXPECT_EQ(world.context->store.file_budget().used_bytes(), 0U);
  }
}

TEST(KeptAnswer, IsNotKeptWhereWhatItContinuesIsGone) {
  AnswerWorld world;
  const auto told = world.ask(kept(false, "resp_gone"), api::AnswerKind::kResponse);
  EXPECT_THAT(told->body, HasSubstr(R"("store":false)"));
  EXPECT_EQ(rows(world), 0);
}

TEST(KeptAnswer, ThatFailsIsNotKept) {
  AnswerWorld world;
  world.script.stops = false;
  world.principal->key_id = "k";
  world.principal->tokens_per_minute = 20;
  api::AnswerOptions wanted = kept(false);
  wanted.max_tokens.reset();
  EXPECT_EQ(world.ask(wanted, api::AnswerKind::kResponse)->error->status, 429);
  EXPECT_EQ(rows(world), 0);
}

TEST(KeptAnswer, ThatIsLeftIsNotKept) {
  AnswerWorld world;
  world.load();
  world.script.stops = false;
  std::binary_semaphore stepping{0};
  std::counting_semaphore<> may_step{0};
  world.script.before_step = [&] {
    stepping.release();
    may_step.acquire();
  };
  const auto told = std::make_shared<Told>();
  world.job(kept(true), std::make_unique<FakeSink>(told), api::AnswerKind::kResponse)->begin();
  stepping.acquire();
  told->hung_up();
  may_step.release(1000);
  told->end.acquire();
  EXPECT_EQ(told->error->status, 499);
  EXPECT_EQ(rows(world), 0);
}

// The reader is behind when the store is asked: what it has not taken comes before the end.
TEST(KeptAnswer, WaitsForItsReaderAndForTheStore) {
  AnswerWorld world;
  auto told = std::make_shared<Told>();
  auto sink = std::make_unique<FakeSink>(told);
  for (int i = 0; i < 12; ++i) sink->results.push_back(http::WriteResult::kFull);
  world.job(kept(true), std::move(sink), api::AnswerKind::kResponse)->begin();
  told->end.acquire();
  EXPECT_TRUE(told->finished);
  EXPECT_LT(told->frames.find("output_text.done"), told->frames.find("response.completed"));
  EXPECT_EQ(rows(world), 1);
}

// A disk that hangs keeps nobody waiting, and what it takes in the end is taken back: the client
// has been told that nothing is kept.
TEST(KeptAnswer, DoesNotWaitForADiskThatHangs) {
  for (const bool stream : {false, true}) {
    AnswerWorld world;
    world.settings.keep_patience = std::chrono::milliseconds(50);
    std::binary_semaphore hangs{0}, goes_on{0};
    world.context->store.thread().read<bool>(
        [&](Database&) -> Result<bool> {
          hangs.release();
          goes_on.acquire();
          return true;
        },
        [](const Result<bool>&) {});
    hangs.acquire();
    const auto told = world.ask(kept(stream), api::AnswerKind::kResponse);
    EXPECT_FALSE(told->error);
    EXPECT_THAT(stream ? told->frames : told->body, HasSubstr(R"("store":false)"));
    EXPECT_EQ(world.log(1).at(0).status, 200);
    EXPECT_EQ(world.live.size(), 0U);
    goes_on.release();
    world.context->store.responses().close();  // what was asked for is answered
    EXPECT_TRUE(eventually([&] { return rows(world) == 0; }, std::chrono::seconds(20)));
  }
}

TEST(KeptAnswer, IsNotKeptWhereTooMuchWaitsForTheDisk) {
  TestFolder folder;
  StoreOptions options;
  options.state_dir = folder / "state";
  options.response_limits.waiting_bytes = 10;
  const auto store = open_store(options);
  std::binary_semaphore hangs{0}, goes_on{0};
  store->thread().read<bool>(
      [&](Database&) -> Result<bool> {
        hangs.release();
        goes_on.acquire();
        return true;
      },
      [](const Result<bool>&) {});
  hangs.acquire();
  NewResponse response{"resp_1", "me", "", "[1,2,3,4,5,6]", "[]", "{", "}"};
  std::binary_semaphore first_is_in{0};
  store->responses().add(response, [&](const Status& status) {
    EXPECT_TRUE(status.ok()) << "one alone always fits: " << status.message();
    first_is_in.release();
  });
  response.id = "resp_2";
  Status second;
  store->responses().add(response, [&](const Status& status) { second = status; });
  EXPECT_EQ(second.code(), Code::kResourceExhausted);
  EXPECT_THAT(second.message(), HasSubstr("17 bytes"));
  goes_on.release();
  first_is_in.acquire();
}

TEST(KeptAnswer, ComesToItsEndWhereTheStoreIsClosing) {
  AnswerWorld world;
  world.context->store.responses().close();
  EXPECT_THAT(world.ask(kept(false), api::AnswerKind::kResponse)->body,
              HasSubstr(R"("store":false)"));
}

}  // namespace
}  // namespace skein::testing
