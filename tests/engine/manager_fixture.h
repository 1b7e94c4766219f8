// A SchedulerManager over real models, and what its tests do with it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "engine/answer.h"
#include "engine/golden_model.h"
#include "engine/manager/load_served_model.h"
#include "engine/manager/scheduler_manager.h"

namespace skein {

inline GenerationRequest request(uint32_t prompt, uint32_t max_tokens, uint64_t seed = 1) {
  GenerationRequest wanted;
  for (uint32_t i = 0; i < prompt; ++i) {
    wanted.prompt.push_back(static_cast<TokenId>((i * 7 + seed) % 250));
  }
  wanted.max_tokens = max_tokens;
  wanted.sampling.seed = seed;
  return wanted;
}

// Real models, as small as they come; what a test wants to be different it changes in the loader.
class ManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    serving_.engine.scheduler.pool_blocks = 64;
    serving_.engine.scheduler.max_batch = 8;
  }

  SchedulerManager::Loader counting_loader() {
    return [this, load = make_model_loader(serving_, pool_, clock_)](
               const ModelConfig& config, const SchedulerManager::MakeRoom& make_room) {
      ++loads_;
      std::this_thread::sleep_for(load_time_);
      Result<ServedModelParts> parts = load(config, make_room);
      if (parts.ok() && change_) change_(*parts);
      return parts;
    };
  }
  void start(SchedulerManager::Options options = {.memory_bytes = uint64_t{4} << 30}) {
    manager_ = std::make_unique<SchedulerManager>(options, counting_loader(), clock_);
    for (const char* id : {"a", "b", "c"}) {
      ASSERT_TRUE(manager_->add({.id = id, .path = golden_model_path()}).ok());
    }
  }
  uint64_t bytes_of_one() {
    ModelLease lease = manager_->acquire("a").value();
    return lease->memory_bytes();
  }

  SystemClock clock_;
  ComputePool pool_{2};
  ServingOptions serving_;
  std::atomic<int> loads_{0};
  std::chrono::milliseconds load_time_{0};
  std::function<void(ServedModelParts&)> change_;
  std::unique_ptr<SchedulerManager> manager_;
};

}  // namespace skein
