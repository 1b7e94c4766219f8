// An engine over a FakeRunner, and what its tests do with it.
#pragma once

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/answer.h"
#include "engine/fake_runner.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein {

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    options_.scheduler.pool_blocks = 64;
    options_.scheduler.max_batch = 8;
    options_.scheduler.max_queue = 100;
    options_.scheduler.step_tokens = 64;
    options_.scheduler.max_context = 1024;
    options_.scheduler.vocab_size = kFakeVocab;
  }

  void start() {
    auto engine =
        BatchInferenceEngine::create(std::make_unique<FakeRunner>(model_), options_, clock_);
    ASSERT_TRUE(engine.ok()) << engine.message();
    engine_ = std::move(engine).value();
  }

  static GenerationRequest request(uint32_t prompt, uint32_t max_tokens) {
    GenerationRequest wanted;
    for (uint32_t i = 0; i < prompt; ++i) wanted.prompt.push_back(static_cast<TokenId>(i % 97));
    wanted.max_tokens = max_tokens;
    return wanted;
  }

  static std::vector<TokenId> expected(uint64_t id, uint32_t prompt, uint32_t count) {
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < count; ++i) tokens.push_back(FakeModel::token(id, prompt + i));
    return tokens;
  }

  // Reads requests of so many tokens: `bad` ends with an error that says `why`, the others as if it
  // had never been there.
  std::vector<Answer> expect_one_failure(std::vector<RequestHandle>& handles, uint64_t bad,
                                         const std::string& why, uint32_t prompt, uint32_t count) {
    std::vector<Answer> answers;
    for (RequestHandle& handle : handles) {
      const Answer& answer = answers.emplace_back(read(handle));
      if (handle.id().value == bad) {
        EXPECT_EQ(answer.end.reason, FinishReason::kError);
        EXPECT_NE(answer.end.status.message().find(why), std::string::npos);
      } else {
        EXPECT_EQ(answer.end.reason, FinishReason::kLength);
        EXPECT_EQ(answer.tokens, expected(handle.id().value, prompt, count));
      }
    }
    EXPECT_EQ(engine_->snapshot().faults, 1U);
    return answers;
  }

  void hang(bool on) { allow(on ? 0 : UINT64_MAX); }
  void allow(uint64_t steps) {
    const std::lock_guard lock(model_->mutex);
    model_->allowed = steps;
    model_->changed.notify_all();
  }
  // Until the runner is inside its n-th run.
  void wait_for_step(size_t n) {
    std::unique_lock lock(model_->mutex);
    ASSERT_TRUE(model_->changed.wait_for(lock, std::chrono::seconds(20),
                                         [&] { return model_->steps.size() >= n; }));
  }

  // Once a step that hung goes on, the engine takes requests again.
  void expect_recovery() {
    hang(false);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (engine_->snapshot().state == EngineState::kHung &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    auto later = engine_->submit(request(4, 3), {});
    ASSERT_TRUE(later.ok()) << later.message();
    EXPECT_EQ(read(*later).tokens, expected(later->id().value, 4, 3));
  }

  std::shared_ptr<FakeModel> model_ = std::make_shared<FakeModel>();
  EngineOptions options_;
  SystemClock clock_;
  InferenceService::Owned<BatchInferenceEngine> engine_;
};

}  // namespace skein
