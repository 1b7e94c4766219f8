// The names and numbers that users and documents know: a change here is a change for them.
#include <gtest/gtest.h>
#include <type_traits>

#include "base/ids.h"
#include "engine/loop/batch_inference_engine.h"
#include "engine/manager/load_served_model.h"
#include "engine/manager/scheduler_manager.h"
#include "kv/block_table.h"
#include "kv/paged_block_manager.h"
#include "kv/prefix_cache.h"
#include "sched/batch_request.h"
#include "sched/priority_queue_with_aging.h"
#include "sched/scheduler.h"

namespace skein {
namespace {

static_assert(kBlockTokens == 32);
static_assert(Priority::HIGH < Priority::NORMAL && Priority::NORMAL < Priority::LOW);
static_assert(static_cast<int>(Priority::HIGH) == 0 && static_cast<int>(Priority::LOW) == 2);
static_assert(std::is_class_v<BatchRequest> && std::is_class_v<KVBlock> &&
              std::is_class_v<BlockTable> && std::is_class_v<PagedBlockManager> &&
              std::is_class_v<PrefixCache> && std::is_class_v<PriorityQueueWithAging> &&
              std::is_class_v<ContinuousBatchingScheduler> &&
              std::is_class_v<BatchInferenceEngine> && std::is_class_v<SchedulerManager>);

TEST(PublicNames, StatusesAndDefaults) {
  EXPECT_EQ(name_of(RequestStatus::WAITING), "waiting");
  EXPECT_EQ(name_of(RequestStatus::PREFILLING), "prefilling");
  EXPECT_EQ(name_of(RequestStatus::RUNNING), "running");
  EXPECT_EQ(name_of(RequestStatus::COMPLETED), "completed");
  EXPECT_EQ(name_of(RequestStatus::CANCELLED), "cancelled");
  const ServingOptions options;
  EXPECT_TRUE(options.enable_batching);
  const SchedulerConfig& scheduler = options.engine.scheduler;
  EXPECT_EQ(scheduler.pool_blocks, 0U);  // from the free memory
  EXPECT_EQ(scheduler.max_batch, 32U);
  EXPECT_EQ(scheduler.max_queue, 1024U);
  EXPECT_EQ(scheduler.step_tokens, 256U);
  // An aging rate of 0.1 class a second: 20 s between LOW and HIGH.
  EXPECT_EQ(2 * scheduler.us_per_class, 20 * kUsPerSecond);
}

}  // namespace
}  // namespace skein
