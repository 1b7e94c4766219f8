// DirectService: what one request may do to the others, and what a pass that hangs does to all.
#include "engine/manager/direct_service.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "engine/tiny_model.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class DirectServiceTest : public ::testing::Test {
 protected:
  void start() {
    auto model = LoadedModel::load(testing::write_tiny_model(folder_), {}, pool_);
    ASSERT_TRUE(model.ok()) << model.message();
    model_ = std::move(*model);
    auto inference = DirectInference::create(*model_, clock_);
    ASSERT_TRUE(inference.ok()) << inference.message();
    options_.scheduler.pool_blocks = 64;
    options_.scheduler.max_context = testing::kTinyContext;
    options_.scheduler.vocab_size = model_->vocab();
    service_ = DirectService::create(std::move(*inference), options_, clock_);
  }

  static GenerationRequest request(uint32_t prompt, uint32_t max_tokens) {
    GenerationRequest wanted;
    for (uint32_t i = 0; i < prompt; ++i) wanted.prompt.push_back(static_cast<TokenId>(i % 97));
    wanted.max_tokens = max_tokens;
    wanted.sampling.ignore_eos = true;
    return wanted;
  }
  static GenerationEnd end_of(RequestHandle& handle) {
    StreamChunk chunk;
    while (handle.stream().wait(chunk, 20 * kUsPerSecond)) {
      if (chunk.end) return *chunk.end;
    }
    ADD_FAILURE() << "request " << handle.id().value << " says nothing";
    return {};
  }

  testing::TestFolder folder_;
  ComputePool pool_{1};
  SystemClock clock_;
  ServiceOptions options_;
  std::unique_ptr<LoadedModel> model_;
  InferenceService::Owned<DirectService> service_;
};

TEST_F(DirectServiceTest, PassThatHangsEndsWhatRunsAndWaits) {
  options_.step_timeout_us = 100 * kUsPerMs;
  start();
  std::unique_lock hang(model_->compute_mutex());  // no pass can begin
  RequestHandle runs = service_->submit(request(4, 3), {}).value();
  RequestHandle waits = service_->submit(request(4, 3), {}).value();
  for (RequestHandle* handle : {&runs, &waits}) {
    const GenerationEnd end = end_of(*handle);
    EXPECT_EQ(end.reason, FinishReason::kError);
    EXPECT_EQ(end.status.code(), Code::kDeadlineExceeded) << end.status.message();
  }
  EXPECT_EQ(service_->snapshot().state, EngineState::kHung);
  EXPECT_EQ(service_->submit(request(4, 3), {}).status().code(), Code::kUnavailable);
  hang.unlock();
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (service_->snapshot().state == EngineState::kHung &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  auto later = service_->submit(request(4, 3), {});
  ASSERT_TRUE(later.ok()) << later.message();
  EXPECT_EQ(end_of(*later).reason, FinishReason::kLength);
}

TEST_F(DirectServiceTest, OwnDeadlineCountsWhileAPassHangs) {
  start();
  std::unique_lock hang(model_->compute_mutex());
  GenerationRequest hurried = request(4, 3);
  hurried.timeout_us = 200 * kUsPerMs;
  RequestHandle runs = service_->submit(hurried, {}).value();
  RequestHandle waits = service_->submit(hurried, {}).value();
  RequestHandle patient = service_->submit(request(4, 3), {}).value();
  EXPECT_EQ(end_of(runs).reason, FinishReason::kTimedOut);
  EXPECT_EQ(end_of(waits).reason, FinishReason::kTimedOut);
  EXPECT_EQ(service_->snapshot().state, EngineState::kRunning) << "far from the step timeout";
  hang.unlock();
  EXPECT_EQ(end_of(patient).reason, FinishReason::kLength);
}

TEST_F(DirectServiceTest, RequestWhoseReaderCannotBeToldEndsAlone) {
  start();
  const auto fails = [] { throw std::runtime_error("planted fault"); };
  RequestHandle bad = service_->submit(request(4, 3), fails).value();
  RequestHandle sound = service_->submit(request(4, 3), {}).value();
  const GenerationEnd end = end_of(bad);
  EXPECT_EQ(end.reason, FinishReason::kClient);
  EXPECT_THAT(end.status.message(), HasSubstr("nobody reads"));
  EXPECT_EQ(end_of(sound).reason, FinishReason::kLength);
}

TEST_F(DirectServiceTest, SaltOfTheRequestReachesTheCache) {
  start();
  const auto cached = [&](uint64_t salt) {
    GenerationRequest wanted = request(20, 2);
    wanted.salt = {salt, salt};
    RequestHandle handle = service_->submit(std::move(wanted), {}).value();
    return end_of(handle).cached_tokens;
  };
  EXPECT_EQ(cached(1), 0U);
  EXPECT_EQ(cached(1), 19U);
  EXPECT_EQ(cached(2), 0U);
}

}  // namespace
}  // namespace skein
