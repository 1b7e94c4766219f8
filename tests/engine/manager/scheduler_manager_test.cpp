#include "engine/manager/scheduler_manager.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/manager_fixture.h"
#include "sched/types.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST_F(ManagerTest, FiftyFirstRequestsMakeOneLoad) {
  load_time_ = 50ms;
  start();
  std::vector<std::thread> clients;
  std::atomic<int> served{0};
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back([&, i] {
      Result<ModelLease> lease = manager_->acquire("a");
      ASSERT_TRUE(lease.ok()) << lease.message();
      auto handle = (*lease)->submit(request(5, 3, static_cast<uint64_t>(i)), {});
      ASSERT_TRUE(handle.ok()) << handle.message();
      if (read(*handle).end.reason == FinishReason::kLength) ++served;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 50);
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(manager_->stats().loads, 1U);
}

TEST_F(ManagerTest, TellsHowMuchOfAModelIsLoaded) {
  LoadShare share;
  std::vector<float> seen;
  serving_.model.report = [&](uint64_t done, uint64_t all) {
    share.report(done, all);
    const std::vector<ModelStatus> models = manager_->models();
    seen.push_back(models[0].loaded_share.value_or(-1));
    EXPECT_FALSE(models[1].loaded_share) << "of a model that nobody loads";
  };
  start({.memory_bytes = uint64_t{4} << 30,
         .before_load =
             [&](const ModelConfig&) {
               EXPECT_EQ(manager_->models()[0].loaded_share, 0.0F) << "of the load before";
               return ok_status();
             },
         .share = &share});
  for (int round = 0; round < 2; ++round) {
    seen.clear();
    ASSERT_TRUE(manager_->acquire("a").ok());
    ASSERT_GT(seen.size(), 2U);
    EXPECT_EQ(seen.front(), 0.0F);
    EXPECT_EQ(seen.back(), 1.0F);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_FALSE(manager_->models()[0].loaded_share);
    ASSERT_TRUE(manager_->unload("a").ok());
  }
  manager_ = nullptr;
}

TEST_F(ManagerTest, UnknownModelIsNotFound) {
  start();
  const Result<ModelLease> lease = manager_->acquire("nobody");
  EXPECT_EQ(lease.status().code(), Code::kNotFound);
  EXPECT_THAT(lease.message(), HasSubstr("nobody"));
  EXPECT_EQ(manager_->add({.id = "a", .path = "x"}).code(), Code::kAlreadyExists);
}

TEST_F(ManagerTest, FailedLoadSaysWhyAndLeavesTheManagerUsable) {
  start();
  ASSERT_TRUE(manager_->add({.id = "broken", .path = "/nowhere/model.gguf"}).ok());
  const Result<ModelLease> broken = manager_->acquire("broken");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.message(), HasSubstr("/nowhere/model.gguf"));
  EXPECT_EQ(manager_->models().back().failure.message(), broken.message());
  EXPECT_TRUE(manager_->acquire("a").ok());
  EXPECT_EQ(manager_->stats().failed_loads, 1U);
}

TEST_F(ManagerTest, LeastRecentlyUsedIdleModelMakesRoom) {
  start({.memory_bytes = uint64_t{4} << 30, .max_models = 2});
  (void)manager_->acquire("a").value();
  (void)manager_->acquire("b").value();
  (void)manager_->acquire("a").value();
  (void)manager_->acquire("c").value();
  const std::vector<ModelStatus> models = manager_->models();
  EXPECT_EQ(models[0].state, ModelState::kReady);
  EXPECT_EQ(models[1].state, ModelState::kUnloaded);
  EXPECT_EQ(models[2].state, ModelState::kReady);
  EXPECT_EQ(manager_->stats().evictions, 1U);
}

TEST_F(ManagerTest, BudgetOfBytesIsKept) {
  start();
  const uint64_t one = bytes_of_one();
  manager_.reset();
  start({.memory_bytes = 2 * one + one / 2});
  (void)manager_->acquire("a").value();
  (void)manager_->acquire("b").value();
  (void)manager_->acquire("c").value();
  EXPECT_EQ(manager_->models()[0].state, ModelState::kUnloaded);
  EXPECT_EQ(manager_->stats().evictions, 1U);
  manager_.reset();
  start({.memory_bytes = one / 2});
  const Result<ModelLease> too_large = manager_->acquire("a");
  EXPECT_EQ(too_large.status().code(), Code::kResourceExhausted);
}

TEST_F(ManagerTest, LeasedAndPinnedModelsStay) {
  start({.memory_bytes = uint64_t{4} << 30, .max_models = 1});
  {
    ModelLease lease = manager_->acquire("a").value();
    const Result<ModelLease> refused = manager_->acquire("b");
    EXPECT_EQ(refused.status().code(), Code::kUnavailable);
    EXPECT_EQ(manager_->unload("a").code(), Code::kUnavailable);
    auto handle = lease->submit(request(5, 5), {});
    EXPECT_EQ(read(*handle).tokens.size(), 5U);
  }
  EXPECT_TRUE(manager_->acquire("b").ok());
  ASSERT_TRUE(manager_->add({.id = "d", .path = golden_model_path(), .pinned = true}).ok());
  EXPECT_TRUE(manager_->acquire("d").ok());
  EXPECT_EQ(manager_->acquire("a").status().code(), Code::kUnavailable);
  ASSERT_TRUE(manager_->unload("d").ok());
  EXPECT_TRUE(manager_->acquire("a").ok());
}

TEST_F(ManagerTest, UnloadedModelLoadsAgain) {
  start();
  auto first = manager_->acquire("a").value()->submit(request(9, 8), {});
  const std::vector<TokenId> tokens = read(*first).tokens;
  ASSERT_TRUE(manager_->unload("a").ok());
  EXPECT_EQ(manager_->models()[0].state, ModelState::kUnloaded);
  ModelLease lease = manager_->acquire("a").value();
  auto again = lease->submit(request(9, 8), {});
  EXPECT_EQ(read(*again).tokens, tokens);
  EXPECT_EQ(loads_, 2);
}

// Two models, room for one, many clients: who is refused is refused by the policy alone.
TEST_F(ManagerTest, SwapsUnderLoad) {
  start({.memory_bytes = uint64_t{4} << 30, .max_models = 1});
  std::vector<std::thread> clients;
  std::atomic<int> served{0}, refused{0};
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const std::string id = (i + round) % 2 == 0 ? "a" : "b";
        Result<ModelLease> lease = manager_->acquire(id);
        if (!lease.ok()) {
          EXPECT_EQ(lease.status().code(), Code::kUnavailable) << lease.message();
          ++refused;
          std::this_thread::sleep_for(1ms);
          continue;
        }
        auto handle = (*lease)->submit(request(5, 3), {});
        ASSERT_TRUE(handle.ok()) << handle.message();
        EXPECT_EQ(read(*handle).end.reason, FinishReason::kLength);
        ++served;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served + refused, 200);
  EXPECT_GT(served, 50);
}

TEST_F(ManagerTest, FiftyLoadsAndUnloadsDoNotGrow) {
  start();
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    uint64_t size = 0, pages = 0;
    statm >> size >> pages;
    return pages * 4096;
  };
  uint64_t after_five = 0;
  for (int i = 0; i < 50; ++i) {
    ModelLease lease = manager_->acquire("a").value();
    auto handle = lease->submit(request(40, 3), {});
    EXPECT_EQ(read(*handle).tokens.size(), 3U);
    lease = ModelLease();
    ASSERT_TRUE(manager_->unload("a").ok());
    if (i == 4) after_five = resident();
  }
  EXPECT_LT(resident(), after_five + after_five / 20 + (4 << 20));
}

TEST_F(ManagerTest, ShutdownDrainsSeveralModelsAndDoesNotWaitOutItsTime) {
  start();
  std::vector<RequestHandle> handles;
  std::vector<ModelLease> leases;
  for (const char* id : {"a", "b", "c"}) {
    leases.push_back(manager_->acquire(id).value());
    handles.push_back(leases.back()->submit(request(5, 100), {}).value());
  }
  manager_->drain();
  EXPECT_EQ(manager_->acquire("a").status().code(), Code::kUnavailable);
  EXPECT_EQ(leases[0]->submit(request(5, 3), {}).status().code(), Code::kUnavailable);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(manager_->shutdown(600 * kUsPerSecond));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 300s);
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kLength);
    EXPECT_EQ(answer.tokens.size(), 100U);
  }
}

TEST_F(ManagerTest, ShutdownCutsWhatDoesNotEndInTime) {
  start();
  ModelLease lease = manager_->acquire("a").value();
  RequestHandle handle = lease->submit(request(5, 900), {}).value();
  EXPECT_TRUE(manager_->shutdown(0));
  EXPECT_EQ(read(handle).end.reason, FinishReason::kDrained);
}

TEST_F(ManagerTest, WithoutBatchingTheTokensAreTheSame) {
  start();
  ModelLease batched = manager_->acquire("a").value();
  auto handle = batched->submit(request(70, 40, 5), {});
  const Answer expected = read(*handle);
  batched = ModelLease();
  manager_.reset();
  serving_.enable_batching = false;
  start();
  ModelLease direct = manager_->acquire("a").value();
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(direct->submit(request(70, 40, 5), {}).value());
  for (RequestHandle& one : handles) {
    const Answer answer = read(one);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.end.reason, expected.end.reason);
  }
  EXPECT_EQ(direct->direct_requests(), 3U);
  // A cancel reaches the one that runs, and one that waits.
  RequestHandle runs = direct->submit(request(5, 900), {}).value();
  RequestHandle waits = direct->submit(request(5, 900), {}).value();
  waits.cancel(FinishReason::kClient);
  EXPECT_EQ(read(waits).end.reason, FinishReason::kClient);
  runs.cancel(FinishReason::kClient);
  EXPECT_EQ(read(runs).end.reason, FinishReason::kClient);
}

TEST_F(ManagerTest, SchedulerThatCannotBeBuiltDegradesToDirectInference) {
  change_ = [](ServedModelParts& parts) { parts.engine.scheduler.max_batch = 0; };
  start();
  ModelLease lease = manager_->acquire("a").value();
  RequestHandle handle = lease->submit(request(5, 4), {}).value();
  EXPECT_EQ(read(handle).tokens.size(), 4U);
  EXPECT_EQ(manager_->stats().direct_requests, 1U);
}

// On another engine, and at every place where it may be cut.
TEST_F(ManagerTest, SeededAnswerThatIsCutGoesOnElsewhereWithTheSameTokens) {
  start();
  ModelLease first = manager_->acquire("a").value();
  ModelLease second = manager_->acquire("b").value();
  const GenerationRequest whole = request(20, 16, 5);
  RequestHandle handle = first->submit(whole, {}).value();
  const std::vector<TokenId> expected = read(handle).tokens;
  ASSERT_EQ(expected.size(), 16U);
  for (uint32_t cut = 1; cut < 16; ++cut) {
    GenerationRequest rest = whole;
    rest.prompt.insert(rest.prompt.end(), expected.begin(), expected.begin() + cut);
    rest.max_tokens = 16 - cut;
    RequestHandle goes_on = second->submit(std::move(rest), {}).value();
    EXPECT_EQ(read(goes_on).tokens, std::vector<TokenId>(expected.begin() + cut, expected.end()));
  }
}

// Loses its runner at the step it is told to.
class LosingRunner final : public StepRunner {
 public:
  LosingRunner(std::unique_ptr<StepRunner> real, std::shared_ptr<std::atomic<int>> steps_left)
      : real_(std::move(real)), steps_left_(std::move(steps_left)) {}
  std::optional<SamplerScratch> patient_scratch() const override {
    return real_->patient_scratch();
  }
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    real_->start(segments, samplers);
  }
  TimeUs finish(const StepOutput& output) override {
    if ((*steps_left_)-- == 0) throw RunnerLost("the device is gone");
    return real_->finish(output);
  }

 private:
  std::unique_ptr<StepRunner> real_;
  std::shared_ptr<std::atomic<int>> steps_left_;
};

TEST_F(ManagerTest, FailedEngineIsMadeAnewAndSilentRequestsGoOn) {
  start();
  ModelLease sound = manager_->acquire("b").value();
  RequestHandle alone = sound->submit(request(20, 12, 3), {}).value();
  const std::vector<TokenId> expected = read(alone).tokens;

  const auto steps_left = std::make_shared<std::atomic<int>>(0);
  change_ = [&](ServedModelParts& parts) {
    parts.make_runner = [real = parts.make_runner,
                         steps_left]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto runner, real());
      return std::unique_ptr<StepRunner>(
          std::make_unique<LosingRunner>(std::move(runner), steps_left));
    };
  };
  ModelLease lease = manager_->acquire("a").value();
  RequestHandle orphan = lease->submit(request(20, 12, 3), {}).value();
  const Answer answer = read(orphan);
  EXPECT_EQ(answer.end.reason, FinishReason::kLength) << answer.end.status.message();
  EXPECT_EQ(answer.tokens, expected);
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (lease->rebuilds() == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(lease->rebuilds(), 1U);
  const uint64_t direct = lease->direct_requests();
  EXPECT_GE(direct, 1U);
  while (lease->snapshot().state != EngineState::kRunning) std::this_thread::sleep_for(1ms);
  RequestHandle later = lease->submit(request(20, 12, 3), {}).value();
  EXPECT_EQ(read(later).tokens, expected);
}

TEST(RequestClass, WholeTable) {
  for (const auto tier : {std::optional<Priority>(), std::optional(Priority::HIGH),
                          std::optional(Priority::NORMAL), std::optional(Priority::LOW)}) {
    EXPECT_EQ(request_class(true, tier), Priority::LOW);
    EXPECT_EQ(request_class(false, tier), tier.value_or(Priority::NORMAL));
  }
}

TEST(DefaultPoolBlocks, FollowsMemoryContextAndBatch) {
  constexpr uint64_t kBlock = 1 << 20;
  // Plenty: a full batch of whole contexts, and no more.
  EXPECT_EQ(default_pool_blocks(uint64_t{100} << 30, kBlock, 1024, 8), 8U * 32);
  // Less: half of what is free.
  EXPECT_EQ(default_pool_blocks(uint64_t{100} << 20, kBlock, 1024, 8), 50U);
  // Little: one whole context rather than half of what is free.
  EXPECT_EQ(default_pool_blocks(uint64_t{40} << 20, kBlock, 1024, 8), 32U);
  // Hardly any: all of it.
  EXPECT_EQ(default_pool_blocks(uint64_t{20} << 20, kBlock, 1024, 8), 20U);
  EXPECT_EQ(default_pool_blocks(0, kBlock, 1024, 8), 1U);
}

}  // namespace
}  // namespace skein
