// From a model path to what SchedulerManager serves: weights, KV pool sized to the memory there is,
// and the engine's configuration.
#pragma once

#include "base/clock.h"
#include "base/compute_pool.h"
#include "engine/manager/scheduler_manager.h"

namespace skein {

struct ServingOptions {
  bool enable_batching = true;
  uint32_t batch_block_pool_size = 0;  // KV blocks; 0: from the memory that is free
  uint32_t batch_max_batch_size = 32;
  uint32_t max_queue = 1024;
  uint32_t step_tokens = 256;
  bool prefix_cache = true;
  TimeUs us_per_class = 10 * kUsPerSecond;  // 1 / aging rate
  TimeUs inter_token_target_us = 0;
  uint32_t max_slowdown_percent = 250;
  TimeUs step_timeout_us = 60 * kUsPerSecond;
  TimeUs stall_timeout_us = 60 * kUsPerSecond;
  ModelOptions model;  // its limits follow from the above
  HashKey hash_key;    // of the prefix caches; random per process
};

// KV blocks to take where the user named no number: enough for a full batch of whole contexts, but
// no more than half of what is free beside the weights, so that other models and the machine have
// room too; at least one whole context if that fits at all.
uint32_t default_pool_blocks(uint64_t free_bytes, uint64_t bytes_per_block, uint32_t max_context,
                             uint32_t max_batch);

// A loader for SchedulerManager. `pool` and `clock` must outlive what it loads.
SchedulerManager::Loader make_model_loader(const ServingOptions& options, ComputePool& pool,
                                           const Clock& clock);

}  // namespace skein
