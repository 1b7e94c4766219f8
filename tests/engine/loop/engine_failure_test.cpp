// When rows, steps, the runner or the engine itself fail: who ends, who goes on.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>

#include "engine/engine_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST_F(EngineTest, OneBadRowEndsAlone) {
  model_->bad_segments = {3};
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 6; ++i) handles.push_back(engine_->submit(request(4, 10), {}).value());
  hang(false);
  expect_one_failure(handles, 3, "nan", 4, 10);
}

TEST_F(EngineTest, StepThatThrowsIsRunAgainRowByRow) {
  model_->throws = {2};
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 5; ++i) handles.push_back(engine_->submit(request(4, 10), {}).value());
  hang(false);
  expect_one_failure(handles, 2, "planted fault", 4, 10);
  EXPECT_GE(engine_->snapshot().reruns, 1U);
}

TEST_F(EngineTest, RequestWhoseReaderCannotBeToldEndsAlone) {
  start();
  hang(true);
  auto bad = engine_->submit(request(4, 10), [] { throw std::bad_alloc(); });
  auto sound = engine_->submit(request(4, 10), {});
  hang(false);
  EXPECT_EQ(read(*sound).tokens, expected(sound->id().value, 4, 10));
  EXPECT_EQ(read(*bad).end.reason, FinishReason::kClient);
  EXPECT_EQ(engine_->snapshot().state, EngineState::kRunning);
}

TEST_F(EngineTest, WatchdogEndsWhatRunsAndWaitsInAHungStepAndTheEngineComesBack) {
  options_.step_timeout_us = 100 * kUsPerMs;
  options_.scheduler.max_batch = 1;
  start();
  hang(true);
  std::vector<RequestHandle> handles;
  handles.push_back(engine_->submit(request(4, 3), {}).value());
  wait_for_step(1);
  // One that the scheduler has not even seen.
  handles.push_back(engine_->submit(request(4, 3), {}).value());
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kError) << "not kTimedOut, which blames the client";
    EXPECT_EQ(answer.end.status.code(), Code::kDeadlineExceeded);
  }
  EXPECT_EQ(engine_->snapshot().state, EngineState::kHung);
  EXPECT_EQ(engine_->submit(request(4, 3), {}).status().code(), Code::kUnavailable);
  expect_recovery();
  EXPECT_EQ(engine_->snapshot().live, 0U);
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
  std::vector<uint64_t> ran;
  for (const auto& step : model_->steps) ran.insert(ran.end(), step.begin(), step.end());
  EXPECT_THAT(ran, ::testing::Not(::testing::Contains(handles[1].id().value)))
      << "what was given up while it waited";
}

TEST_F(EngineTest, OwnDeadlineCountsWhileAStepHangs) {
  options_.scheduler.max_batch = 1;
  start();
  hang(true);
  GenerationRequest hurried = request(4, 3);
  hurried.timeout_us = 300 * kUsPerMs;
  auto runs = engine_->submit(hurried, {});
  wait_for_step(1);
  auto waits = engine_->submit(hurried, {});
  auto patient = engine_->submit(request(4, 3), {});
  for (RequestHandle* handle : {&*runs, &*waits}) {
    EXPECT_EQ(read(*handle).end.reason, FinishReason::kTimedOut);
  }
  EXPECT_EQ(engine_->snapshot().state, EngineState::kRunning) << "far from the step timeout";
  hang(false);
  EXPECT_EQ(read(*patient).tokens, expected(patient->id().value, 4, 3));
  EXPECT_EQ(engine_->snapshot().live, 0U);
}

TEST_F(EngineTest, EngineThatCannotEvenFailInOrderTellsEveryone) {
  options_.scheduler.max_batch = 1;
  options_.hand_over = [](const std::vector<Submission>&,
                          const Status&) -> std::shared_ptr<RequestCanceller> {
    throw std::bad_alloc();
  };
  start();
  hang(true);
  auto runs = engine_->submit(request(4, 3), {});
  wait_for_step(1);
  auto waits = engine_->submit(request(4, 3), {});
  {
    const std::lock_guard lock(model_->mutex);
    model_->lost = true;
  }
  hang(false);
  EXPECT_EQ(read(*runs).end.reason, FinishReason::kError);
  EXPECT_EQ(read(*waits).end.reason, FinishReason::kError);
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(engine_->snapshot().state, EngineState::kFailed);
  EXPECT_EQ(engine_->snapshot().live, 0U);
}

TEST_F(EngineTest, StopDoesNotWaitForAHungStep) {
  start();
  hang(true);
  auto handle = engine_->submit(request(4, 3), {});
  wait_for_step(1);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(engine_->stop(50 * kUsPerMs));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
  engine_.reset();
  hang(false);  // the thread that was left behind ends by itself
  EXPECT_EQ(read(*handle).end.reason, FinishReason::kDrained);
}

TEST_F(EngineTest, LostRunnerHandsOverWhatHasSentNothing) {
  std::vector<Submission> taken;
  std::mutex mutex;
  options_.scheduler.max_batch = 1;
  options_.hand_over = [&](std::vector<Submission> silent, const Status&) {
    const std::lock_guard lock(mutex);
    taken = std::move(silent);
    return nullptr;
  };
  start();
  allow(0);
  auto talking = engine_->submit(request(4, 1000), {});
  allow(2);
  wait_for_step(3);
  auto silent = engine_->submit(request(7, 5), {});
  {
    const std::lock_guard lock(model_->mutex);
    model_->lost = true;
  }
  hang(false);
  EXPECT_EQ(read(*talking).end.reason, FinishReason::kError);
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(engine_->snapshot().state, EngineState::kFailed);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].id, silent->id());
  EXPECT_EQ(taken[0].request.prompt.size(), 7U);
  EXPECT_FALSE(taken[0].stream->ended());
}

struct CancelledRequests final : RequestCanceller {
  void cancel(RequestId id, FinishReason reason) override { told.emplace_back(id, reason); }
  std::vector<std::pair<RequestId, FinishReason>> told;
};

TEST_F(EngineTest, CancelsReachWhoeverTookTheRequestsOfALostRunner) {
  options_.scheduler.max_batch = 1;
  const auto successor = std::make_shared<CancelledRequests>();
  RequestHandle waits;
  RequestHandle hurries;
  options_.hand_over = [&](const std::vector<Submission>& silent, const Status&) {
    EXPECT_EQ(silent.size(), 3U);
    hurries.cancel(FinishReason::kStop);  // the mailbox is closed, and there is no successor yet
    return successor;
  };
  start();
  hang(true);
  auto runs = engine_->submit(request(4, 3), {});
  wait_for_step(1);
  waits = engine_->submit(request(4, 3), {}).value();
  hurries = engine_->submit(request(4, 3), {}).value();
  waits.cancel(FinishReason::kClient);  // lies in the mailbox when the runner is lost
  {
    const std::lock_guard lock(model_->mutex);
    model_->lost = true;
  }
  hang(false);
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_THAT(successor->told,
              ::testing::ElementsAre(std::pair(waits.id(), FinishReason::kClient),
                                     std::pair(hurries.id(), FinishReason::kStop)));
}

}  // namespace
}  // namespace skein
