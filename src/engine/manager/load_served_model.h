// From a model path to what SchedulerManager serves: weights, KV pool sized to the memory there is,
// and the engine's configuration.
#pragma once

#include "base/clock.h"
#include "base/compute_pool.h"
#include "engine/manager/scheduler_manager.h"

namespace skein {

struct ServingOptions {
  bool enable_batching = true;
  // Of its scheduler, pool_blocks may be 0: as the free memory allows. Context and vocabulary are
  // the model's.
  EngineOptions engine;
  // Of the scheduler, on a device: the rate at which a GPU reads prompts still grows there. Running
  // answers are protected by what a step takes, not by this.
  uint32_t device_step_tokens = 2048;
  ModelOptions model;       // its limits follow from the scheduler's
  std::string draft_model;  // of a small model that guesses for the others; empty: none
  // By a model's id: who is told what its prefix cache holds, and the key of the hashes by which
  // contents are named. Empty, or no feed: nobody.
  struct KvEvents {
    std::shared_ptr<KvEventFeed> feed;
    HashKey hash_key;
  };
  std::function<KvEvents(const std::string& model)> kv_events;
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
