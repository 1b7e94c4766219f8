// What is thrown on the thread that loads models: one load fails, the manager goes on.
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <system_error>

#include "engine/manager/load_served_model.h"
#include "engine/manager/scheduler_manager.h"
#include "engine/tiny_model.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

class LoadFaultsTest : public ::testing::Test {
 protected:
  void start(SchedulerManager::Loader loader) {
    manager_ = std::make_unique<SchedulerManager>(
        SchedulerManager::Options{.memory_bytes = uint64_t{1} << 30}, std::move(loader), clock_);
    ASSERT_TRUE(manager_->add({.id = "m", .path = testing::write_tiny_model(folder_)}).ok());
  }
  SchedulerManager::Loader sound_loader() {
    ServingOptions serving;
    serving.engine.scheduler.pool_blocks = 64;
    serving.engine.scheduler.max_batch = 8;
    return make_model_loader(serving, pool_, clock_);
  }
  static GenerationEnd answer(ServedModel& model) {
    GenerationRequest wanted;
    wanted.prompt = {1, 2, 3};
    wanted.max_tokens = 4;
    wanted.sampling.ignore_eos = true;
    auto handle = model.submit(std::move(wanted), {});
    EXPECT_TRUE(handle.ok()) << handle.message();
    StreamChunk chunk;
    while (handle.ok() && handle->stream().wait(chunk, 20 * kUsPerSecond)) {
      if (chunk.end) return *chunk.end;
    }
    ADD_FAILURE() << "no end came";
    return {};
  }

  testing::TestFolder folder_;
  SystemClock clock_;
  ComputePool pool_{1};
  std::unique_ptr<SchedulerManager> manager_;
};

TEST_F(LoadFaultsTest, WhateverALoaderThrowsFailsThatLoadAlone) {
  const std::vector<std::function<void()>> throws = {
      [] { throw std::bad_alloc(); },
      [] {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      },
      [] { throw std::runtime_error("planted fault"); },
  };
  size_t load = 0;
  start([&, sound = sound_loader()](const ModelConfig& config,
                                    const SchedulerManager::MakeRoom& make_room) {
    if (load < throws.size()) throws[load++]();
    return sound(config, make_room);
  });
  for (size_t i = 0; i < throws.size(); ++i) {
    const Result<ModelLease> failed = manager_->acquire("m");
    ASSERT_FALSE(failed.ok());
    EXPECT_FALSE(failed.message().empty());
    EXPECT_EQ(manager_->models()[0].failure.message(), failed.message());
    EXPECT_EQ(manager_->models()[0].state, ModelState::kUnloaded);
  }
  Result<ModelLease> lease = manager_->acquire("m");
  ASSERT_TRUE(lease.ok()) << lease.message();
  EXPECT_EQ(answer(**lease).reason, FinishReason::kLength);
}

TEST_F(LoadFaultsTest, WaiterThatThrowsLeavesTheOthersTheirModel) {
  std::promise<void> all_wait;
  start([&, sound = sound_loader()](const ModelConfig& config,
                                    const SchedulerManager::MakeRoom& make_room) {
    all_wait.get_future().wait();
    return sound(config, make_room);
  });
  manager_->acquire("m", [](const Result<ModelLease>&) { throw std::bad_alloc(); });
  std::promise<Result<ModelLease>> second;
  manager_->acquire("m", [&](Result<ModelLease> lease) { second.set_value(std::move(lease)); });
  all_wait.set_value();
  Result<ModelLease> lease = second.get_future().get();
  ASSERT_TRUE(lease.ok()) << lease.message();
  EXPECT_EQ(answer(**lease).reason, FinishReason::kLength);
}

// No memory or no thread for another engine: requests run one at a time.
TEST_F(LoadFaultsTest, EngineThatCannotBeMadeDegradesToDirectInference) {
  start([sound = sound_loader()](
            const ModelConfig& config,
            const SchedulerManager::MakeRoom& make_room) -> Result<ServedModelParts> {
    SKEIN_ASSIGN(ServedModelParts parts, sound(config, make_room));
    parts.make_runner = []() -> Result<std::unique_ptr<StepRunner>> { throw std::bad_alloc(); };
    return parts;
  });
  Result<ModelLease> lease = manager_->acquire("m");
  ASSERT_TRUE(lease.ok()) << lease.message();
  EXPECT_EQ(answer(**lease).reason, FinishReason::kLength);
  EXPECT_EQ((*lease)->direct_requests(), 1U);
}

}  // namespace
}  // namespace skein
