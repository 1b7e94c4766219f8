// One answer from its parsed request to its end, with a model that says what the test wants.
#include "server/answer/answer_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/answer/answer_world.h"

namespace skein::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

api::AnswerOptions wanted(bool stream = false) {
  api::AnswerOptions generation;
  generation.stream = stream;
  generation.max_tokens = 16;
  return generation;
}

TEST(AnswerJob, AWholeAnswerAndItsLineOfTheLog) {
  AnswerWorld world;
  const auto told = world.ask(wanted());
  EXPECT_THAT(told->body, HasSubstr(R"("text":"Hello","logprobs":null,"finish_reason":"stop")"));
  EXPECT_THAT(told->body, HasSubstr(R"("prompt_tokens":3,"completion_tokens":5,)"));
  const FinishedRequest line = world.log(1).at(0);
  EXPECT_THAT(told->body, HasSubstr(line.id));
  EXPECT_EQ(line.request_id, "r-1");
  EXPECT_EQ(line.route, "/v1/completions");
  EXPECT_EQ(line.model, "tiny");
  EXPECT_EQ(line.status, 200);
  EXPECT_EQ(line.choices, 1U);
  EXPECT_EQ(line.output_tokens, 5U);
  EXPECT_EQ(world.live.size(), 0U);
  EXPECT_EQ(world.memory.used_bytes(), 0U);
}

TEST(AnswerJob, AStreamIsItsTextInOrderAndOneEnd) {
  AnswerWorld world;
  api::AnswerOptions generation = wanted(true);
  generation.stop = {"lo"};
  const auto told = world.ask(generation);
  EXPECT_TRUE(told->started && told->finished);
  std::string text;
  for (size_t at = 0; (at = told->frames.find(R"("text":")", at)) != std::string::npos;) {
    at += 8;
    text += told->frames.substr(at, told->frames.find('"', at) - at);
  }
  EXPECT_EQ(text, "Hel");
  EXPECT_THAT(told->frames, HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_TRUE(told->frames.ends_with("data: [DONE]\n\n")) << told->frames;
}

TEST(AnswerJob, EveryChoiceOfEveryPromptIsAnswered) {
  AnswerWorld world;
  api::AnswerOptions generation = wanted();
  generation.n = 3;
  const auto told = world.ask(generation);
  EXPECT_THAT(told->body, HasSubstr(R"({"index":2,"text":"Hello")"));
  EXPECT_THAT(told->body, HasSubstr(R"("prompt_tokens":3,"completion_tokens":15,)"));
  EXPECT_EQ(world.log(1).at(0).choices, 3U);
}

// Workers that take nothing: whoever needs one is told why.
TEST(AnswerJob, WhatFindsItsModelLoadedNeedsNoOtherWorker) {
  AnswerWorld world({.queue_limit = 0});
  world.load();
  EXPECT_THAT(world.ask(wanted())->body, HasSubstr("Hello"));
}

// Compiling takes long: who has nothing to compile does not wait for it.
TEST(AnswerJob, FormsKeepNobodyElseWaiting) {
  AnswerWorld world;
  world.load();
  std::binary_semaphore compiled{0};
  ASSERT_TRUE(world.forms.post(
      Priority::NORMAL, "", [&] { compiled.acquire(); }, [] {}));
  api::AnswerOptions bound = wanted();
  bound.form =
      api::AskedForm{{.kind = FormSpec::Kind::kRegex, .text = "[A-Za-z]*"}, "guided_regex"};
  auto told = std::make_shared<Told>();
  world.job(bound, std::make_unique<FakeSink>(told))->begin();
  EXPECT_FALSE(world.ask(wanted())->error);
  const bool has_ended = told->end.try_acquire();
  compiled.release();
  ASSERT_FALSE(has_ended) << "it did not wait for the other form";
  told->end.acquire();
  EXPECT_FALSE(told->error) << told->error->message;
}

TEST(AnswerJob, AFullPoolOfWorkersIsNoDrainAndADrainIsNoFullPool) {
  AnswerWorld world({.queue_limit = 0});
  world.load();
  for (const bool draining : {false, true}) {
    world.draining = draining;
    const auto told = std::make_shared<Told>();
    world.job(wanted(), std::make_unique<FakeSink>(told, true))->begin();
    told->end.acquire();
    ASSERT_TRUE(told->error);
    EXPECT_EQ(told->error->status, 503);
    EXPECT_EQ(told->error->code, draining ? "unavailable" : "overloaded");
  }
}

TEST(AnswerJob, ALineOfABatchIsAnsweredOnAWorker) {
  AnswerWorld world;
  world.load();
  const auto told = std::make_shared<Told>();
  world.job(wanted(), std::make_unique<FakeSink>(told, true))->begin();
  told->end.acquire();
  EXPECT_THAT(told->body, HasSubstr("Hello"));
}

TEST(AnswerJob, AModelThatIsNotThereIsAnErrorBeforeTheStreamBegins) {
  AnswerWorld world;
  api::AnswerOptions generation = wanted(true);
  generation.model = "nobody";
  const auto unknown = world.ask(generation);
  EXPECT_EQ(unknown->error->status, 404);
  EXPECT_FALSE(unknown->started);
  generation.model = "broken";
  const auto broken = world.ask(generation);
  EXPECT_EQ(broken->error->code, "model_load_failed");
  EXPECT_EQ(world.log(2).at(1).status, 503);
}

TEST(AnswerJob, WhoLeavesBeforeItsModelIsThereIsCancelled) {
  AnswerWorld world;
  std::binary_semaphore loading{0}, may_load{0};
  world.before_load = [&] {
    loading.release();
    may_load.acquire();
  };
  const auto told = std::make_shared<Told>();
  world.job(wanted(true), std::make_unique<FakeSink>(told))->begin();
  loading.acquire();
  told->hung_up();
  may_load.release();
  told->end.acquire();
  EXPECT_EQ(told->error->status, 499);
  EXPECT_EQ(world.log(1).at(0).reason, FinishReason::kClient);
  EXPECT_EQ(world.log(1).at(0).output_tokens, 0U);
}

TEST(AnswerJob, WhoLeavesInTheMiddleEndsTheWork) {
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
  world.job(wanted(true), std::make_unique<FakeSink>(told))->begin();
  stepping.acquire();
  told->hung_up();
  may_step.release(1000);
  told->end.acquire();
  ASSERT_TRUE(told->error);
  EXPECT_EQ(told->error->status, 499);
  EXPECT_FALSE(told->finished);
  EXPECT_LT(world.log(1).at(0).output_tokens, 16U);
}

TEST(AnswerJob, AReaderThatIsBehindLosesNothing) {
  AnswerWorld world;
  using enum http::WriteResult;
  const auto told = std::make_shared<Told>();
  auto sink = std::make_unique<FakeSink>(told);
  sink->results = {kFull, kFull, kTaken, kFull, kFull, kFull};
  world.job(wanted(true), std::move(sink))->begin();
  told->end.acquire();
  EXPECT_TRUE(told->finished);
  for (const char* letter : {R"("text":"H)", "e", "l", "o", "[DONE]"}) {
    EXPECT_THAT(told->frames, HasSubstr(letter));
  }
}

TEST(AnswerJob, AnAnswerThatOutgrowsTheBudgetFailsAlone) {
  AnswerWorld world({.memory_bytes = 1000});
  world.script.text = std::string(400, 'x');
  api::AnswerOptions generation = wanted();
  generation.max_tokens = 400;
  const auto told = world.ask(generation);
  ASSERT_TRUE(told->error);
  // Which of the two depends on how much of it came at once.
  EXPECT_THAT(told->error->code, AnyOf("answer_too_large", "overloaded"));
  EXPECT_EQ(world.log(1).at(0).status, told->error->status);
  EXPECT_EQ(world.memory.used_bytes(), 0U);
  EXPECT_THAT(world.ask(wanted())->body, HasSubstr("xxx"));
}

TEST(AnswerJob, OneThatRunsOutOfMemoryIsGivenUpAlone) {
  AnswerWorld world;
  const auto told = std::make_shared<Told>();
  auto sink = std::make_unique<FakeSink>(told);
  sink->results = {std::nullopt};  // throws
  world.job(wanted(true), std::move(sink))->begin();
  told->end.acquire();
  ASSERT_TRUE(told->error);
  EXPECT_EQ(told->error->code, "overloaded");
  EXPECT_THAT(world.ask(wanted())->body, HasSubstr("Hello"));
}

TEST(AnswerJob, ItsExplanationIsRefusedForTheTrueReason) {
  AnswerWorld world({.queue_limit = 0});
  world.load();
  std::counting_semaphore<> may_step{0};
  world.script.before_step = [&] { may_step.acquire(); };  // it is live until then
  const auto told = std::make_shared<Told>();
  const auto job = world.job(wanted(), std::make_unique<FakeSink>(told));
  job->begin();
  std::binary_semaphore explained{0};
  std::optional<api::Error> error;
  job->explain([&](const RequestExplanation& found) {
    error = found.error;
    explained.release();
  });
  may_step.release(1000);
  explained.acquire();
  told->end.acquire();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "overloaded");
}

TEST(AnswerJob, AKeyThatHasUsedUpItsMinuteIsToldWhatItUsed) {
  AnswerWorld world;
  world.script.stops = false;
  world.principal->key_id = "k";
  world.principal->tokens_per_minute = 20;
  api::AnswerOptions generation = wanted();
  generation.max_tokens.reset();
  const auto told = world.ask(generation);
  ASSERT_TRUE(told->error);
  EXPECT_EQ(told->error->status, 429);
  ASSERT_TRUE(told->error->used);
  EXPECT_EQ(told->error->used->prompt_tokens, 3U);
  EXPECT_EQ(told->error->used->completion_tokens, 17U);
  EXPECT_EQ(world.ask(generation)->error->code, "rate_limit_exceeded");
}

}  // namespace
}  // namespace skein::testing
