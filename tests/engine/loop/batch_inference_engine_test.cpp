#include "engine/loop/batch_inference_engine.h"

#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "engine/engine_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST_F(EngineTest, AnswersManyAtOnceInSharedSteps) {
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 8; ++i) {
    auto handle = engine_->submit(request(5, 20), {});
    ASSERT_TRUE(handle.ok()) << handle.message();
    handles.push_back(std::move(handle).value());
  }
  hang(false);
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.tokens, expected(handle.id().value, 5, 20));
    EXPECT_EQ(answer.end.reason, FinishReason::kLength);
    EXPECT_TRUE(answer.end.status.ok());
    EXPECT_EQ(answer.end.prompt_tokens, 5U);
    EXPECT_EQ(answer.end.generated_tokens, 20U);
  }
  // One pass for all: about 20 steps, not 160.
  EXPECT_LT(model_->steps.size(), 40U);
  EXPECT_EQ(engine_->snapshot().live, 0U);
}

TEST_F(EngineTest, StopTokenEndsAndIsNotDelivered) {
  model_->stops = {1};
  start();
  auto handle = engine_->submit(request(3, 20), {});
  const Answer answer = read(*handle);
  EXPECT_THAT(answer.tokens, ::testing::IsEmpty());
  EXPECT_EQ(answer.end.reason, FinishReason::kStop);
}

TEST_F(EngineTest, RefusesAtTheDoor) {
  start();
  EXPECT_EQ(engine_->submit(request(0, 1), {}).status().code(), Code::kInvalidArgument);
  const auto too_long = engine_->submit(request(1000, 100), {});
  EXPECT_EQ(too_long.status().code(), Code::kOutOfRange);
  EXPECT_THAT(too_long.message(),
              ::testing::AllOf(::testing::HasSubstr("1100"), ::testing::HasSubstr("1024")));
  GenerationRequest hot = request(3, 3);
  hot.sampling.temperature = -1;
  const auto refused = engine_->submit(std::move(hot), {});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("temperature"));
}

TEST_F(EngineTest, QueueIsBoundedAndAnswersAtOnce) {
  options_.scheduler.max_queue = 10;
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  handles.push_back(engine_->submit(request(3, 2), {}).value());
  wait_for_step(1);
  uint32_t refused = 0;
  for (int i = 0; i < 30; ++i) {
    auto handle = engine_->submit(request(3, 2), {});
    if (handle.ok()) {
      handles.push_back(std::move(handle).value());
    } else {
      EXPECT_EQ(handle.status().code(), Code::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 21U) << "one tenant leaves an eighth to the others, even while it is alone";
  // An eighth more, and one, for those whom the others must not shut out.
  GenerationRequest urgent = request(3, 2);
  urgent.priority = Priority::HIGH;
  for (int i = 0; i < 2; ++i) {
    auto handle = engine_->submit(urgent, {});
    ASSERT_TRUE(handle.ok()) << handle.message();
    handles.push_back(std::move(handle).value());
  }
  EXPECT_EQ(engine_->submit(urgent, {}).status().code(), Code::kResourceExhausted);
  hang(false);
  for (RequestHandle& handle : handles) {
    EXPECT_EQ(read(handle).end.reason, FinishReason::kLength);
  }
  // The places are free again.
  auto late = engine_->submit(request(3, 2), {});
  ASSERT_TRUE(late.ok()) << late.message();
  EXPECT_EQ(read(*late).end.reason, FinishReason::kLength);
}

// One tenant has filled what it may; another one gets in, and from then on the first one has to
// wait for its turn.
TEST_F(EngineTest, TenantThatFloodsTheQueueShutsNobodyOut) {
  options_.scheduler.max_queue = 80;
  start();
  hang(true);
  GenerationRequest flood = request(3, 2);
  flood.tenant = 1;
  flood.priority = Priority::LOW;
  std::vector<RequestHandle> handles;
  handles.push_back(engine_->submit(flood, {}).value());
  wait_for_step(1);
  for (int i = 0; i < 70; ++i) handles.push_back(engine_->submit(flood, {}).value());
  EXPECT_EQ(engine_->submit(flood, {}).status().code(), Code::kResourceExhausted);
  EXPECT_FALSE(engine_->share_retry_us(1)) << "nobody else asks";
  GenerationRequest other = request(3, 2);
  other.tenant = 2;
  for (int i = 0; i < 7; ++i) {
    auto handle = engine_->submit(other, {});
    ASSERT_TRUE(handle.ok()) << handle.message();
    handles.push_back(std::move(*handle));
  }
  const auto refused = engine_->submit(flood, {});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("71 requests of this key would wait"));
  EXPECT_GE(engine_->share_retry_us(1).value_or(0), 1);
  EXPECT_FALSE(engine_->share_retry_us(2));
  hang(false);
  for (RequestHandle& handle : handles) EXPECT_EQ(read(handle).end.reason, FinishReason::kLength);
  // Its places are free again, and the batch is open.
  EXPECT_TRUE(engine_->submit(flood, {}).ok());
}

TEST_F(EngineTest, HangUpIsInNoLaterPlan) {
  start();
  allow(0);
  auto keeps = engine_->submit(request(4, 200), {});
  auto leaves = engine_->submit(request(4, 900), {});
  allow(5);
  wait_for_step(6);  // the sixth is planned already, and waits
  const uint64_t id = leaves->id().value;
  leaves = RequestHandle();  // hangs up
  hang(false);
  EXPECT_EQ(read(*keeps).end.reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  for (size_t i = 6; i < model_->steps.size(); ++i) {
    EXPECT_THAT(model_->steps[i], ::testing::Not(::testing::Contains(id))) << "step " << i;
  }
  EXPECT_GE(model_->steps.size(), 200U);
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
  EXPECT_EQ(engine_->snapshot().finished[static_cast<size_t>(FinishReason::kClient)], 1U);
}

TEST_F(EngineTest, CancelWithStopCompletesTheRequest) {
  start();
  allow(0);
  auto handle = engine_->submit(request(4, 1000), {});
  allow(3);
  wait_for_step(4);
  handle->cancel(FinishReason::kStop);
  hang(false);
  const Answer answer = read(*handle);
  EXPECT_EQ(answer.end.reason, FinishReason::kStop);
  EXPECT_LE(answer.tokens.size(), 4U);
}

TEST_F(EngineTest, StalledReaderIsCutAloneAndItsBlocksReturn) {
  options_.stall_timeout_us = 50 * kUsPerMs;
  ManualClock clock;
  auto engine = BatchInferenceEngine::create(std::make_unique<FakeRunner>(model_), options_, clock);
  ASSERT_TRUE(engine.ok()) << engine.message();
  allow(0);
  auto stalled = (*engine)->submit(request(4, 1000), {});
  auto reads = (*engine)->submit(request(4, 50), {});
  allow(2);
  wait_for_step(3);  // the third waits, so two tokens or more were delivered
  StreamChunk chunk;
  while (reads->stream().take(chunk)) {
  }
  clock.advance(options_.stall_timeout_us + 1);
  allow(UINT64_MAX);
  EXPECT_EQ(read(*reads).end.reason, FinishReason::kLength);
  const Answer answer = read(*stalled);
  EXPECT_EQ(answer.end.reason, FinishReason::kClient);
  EXPECT_LT(answer.tokens.size(), 5U);
  EXPECT_TRUE((*engine)->stop(20 * kUsPerSecond));
  EXPECT_EQ((*engine)->snapshot().stalled_readers, 1U);
  EXPECT_EQ((*engine)->snapshot().scheduler.held_blocks, 0U);
}

TEST_F(EngineTest, DeadlineEndsWaitingRequests) {
  options_.scheduler.max_batch = 1;
  start();
  hang(true);
  auto first = engine_->submit(request(4, 3), {});
  wait_for_step(1);
  GenerationRequest hurried = request(4, 3);
  hurried.timeout_us = 1;
  auto second = engine_->submit(std::move(hurried), {});
  std::this_thread::sleep_for(2ms);
  hang(false);
  const Answer answer = read(*second);
  EXPECT_EQ(answer.end.reason, FinishReason::kTimedOut);
  EXPECT_THAT(answer.tokens, ::testing::IsEmpty());
  EXPECT_EQ(read(*first).end.reason, FinishReason::kLength);
}

TEST_F(EngineTest, StopEndsEverythingWithDrained) {
  options_.scheduler.max_batch = 2;
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 6; ++i) handles.push_back(engine_->submit(request(4, 900), {}).value());
  wait_for_step(1);
  std::thread stopper([&] { EXPECT_TRUE(engine_->stop(20 * kUsPerSecond)); });
  std::this_thread::sleep_for(5ms);
  hang(false);
  stopper.join();
  for (RequestHandle& handle : handles) {
    EXPECT_EQ(read(handle).end.reason, FinishReason::kDrained);
  }
  EXPECT_EQ(engine_->submit(request(4, 3), {}).status().code(), Code::kUnavailable);
}

TEST_F(EngineTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  start();
  hang(true);
  auto handle = engine_->submit(request(4, 30), {});
  wait_for_step(1);
  engine_->drain();
  EXPECT_EQ(engine_->submit(request(4, 3), {}).status().code(), Code::kUnavailable);
  hang(false);
  EXPECT_EQ(read(*handle).end.reason, FinishReason::kLength);
}

TEST_F(EngineTest, ExplainsLiveRequestsOnly) {
  options_.scheduler.max_batch = 1;
  start();
  hang(true);
  auto first = engine_->submit(request(4, 3), {});
  wait_for_step(1);
  auto second = engine_->submit(request(4, 3), {});
  std::thread release([&] {
    std::this_thread::sleep_for(20ms);
    hang(false);
  });
  const Result<Explanation> unknown = engine_->explain(RequestId(99));
  EXPECT_EQ(unknown.status().code(), Code::kNotFound);
  release.join();
  read(*first);
  read(*second);
}

using Explanations = Result<std::vector<Explanation>>;

TEST_F(EngineTest, OneStepExplainsAllChoicesOfARequest) {
  options_.scheduler.max_batch = 1;
  options_.scheduler.max_queue = 600;
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 512; ++i) {
    handles.push_back(engine_->submit(request(4, 3), {}).value());
    ids.push_back(handles.back().id());
    if (i == 0) wait_for_step(1);
  }
  std::promise<Explanations> answer;
  engine_->explain(ids, [&](Explanations e) { answer.set_value(std::move(e)); });
  auto future = answer.get_future();
  EXPECT_EQ(future.wait_for(0s), std::future_status::timeout) << "nobody waits for it";
  allow(1);
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  const Explanations explained = future.get();
  ASSERT_TRUE(explained.ok()) << explained.message();
  ASSERT_EQ(explained->size(), 512U);
  for (uint32_t i = 0; i < 512; ++i) {
    EXPECT_EQ((*explained)[i].id, ids[i]);
    EXPECT_EQ((*explained)[i].queue_position, i) << "the first one runs";
  }
  {
    const std::lock_guard lock(model_->mutex);
    EXPECT_LE(model_->steps.size(), 2U) << "one message, so one step is waited for";
  }
  handles.clear();
  hang(false);
}

TEST_F(EngineTest, ExplanationsAreGivenUpAfterTenSecondsAndBounded) {
  ManualClock clock;
  auto engine = BatchInferenceEngine::create(std::make_unique<FakeRunner>(model_), options_, clock);
  ASSERT_TRUE(engine.ok()) << engine.message();
  hang(true);
  auto handle = (*engine)->submit(request(4, 3), {});
  wait_for_step(1);
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Code, int> answers;
  const auto ask = [&] {
    (*engine)->explain({handle->id()}, [&](const Explanations& e) {
      const std::lock_guard lock(mutex);
      ++answers[e.status().code()];
      changed.notify_all();
    });
  };
  for (int i = 0; i < 300; ++i) ask();
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(answers[Code::kResourceExhausted], 300 - 256);
  }
  clock.advance(11 * kUsPerSecond);
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, 20s, [&] { return answers[Code::kUnavailable] == 256; }));
  }
  EXPECT_EQ((*engine)->snapshot().state, EngineState::kRunning);
  hang(false);
  EXPECT_EQ(read(*handle).end.reason, FinishReason::kLength);
  EXPECT_TRUE((*engine)->stop(20 * kUsPerSecond));
  ask();
  const std::lock_guard lock(mutex);
  EXPECT_EQ(answers[Code::kUnavailable], 257) << "stopped";
}

TEST_F(EngineTest, PrefixOfAnEarlierRequestIsNotComputedAgain) {
  start();
  auto first = engine_->submit(request(330, 2), {});
  EXPECT_EQ(read(*first).end.cached_tokens, 0U);
  uint64_t before = 0;
  {
    const std::lock_guard lock(model_->mutex);
    before = model_->computed_tokens;
  }
  auto second = engine_->submit(request(330, 2), {});
  EXPECT_EQ(read(*second).end.cached_tokens, 320U);
  const std::lock_guard lock(model_->mutex);
  EXPECT_EQ(model_->computed_tokens - before, 10U + 1U);
}

TEST_F(EngineTest, QueueOfTenThousand) {
  options_.scheduler.max_queue = 10'000 + 32;
  options_.scheduler.max_batch = 64;
  options_.scheduler.pool_blocks = 256;
  start();
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 10'000; ++i) {
    GenerationRequest wanted = request(3, 2);
    wanted.prompt[0] = i % 1000;
    auto handle = engine_->submit(std::move(wanted), {});
    ASSERT_TRUE(handle.ok()) << handle.message();
    handles.push_back(std::move(handle).value());
  }
  for (RequestHandle& handle : handles) {
    EXPECT_EQ(read(handle).tokens, expected(handle.id().value, 3, 2));
  }
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
}

}  // namespace
}  // namespace skein
