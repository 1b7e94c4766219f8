#include "engine/manager/load_served_model.h"

#include <algorithm>
#include <utility>

#include "engine/loop/model_runner.h"

namespace skein {
namespace {

ModelOptions model_options(const ServingOptions& options) {
  ModelOptions model = options.model;
  // Decode rows run beside a full prefill budget.
  model.limits.rows = options.step_tokens + options.batch_max_batch_size;
  model.limits.logit_rows = options.batch_max_batch_size;
  return model;
}

SchedulerConfig scheduler_config(const ServingOptions& options, const LoadedModel& model,
                                 uint32_t blocks) {
  SchedulerConfig config;
  config.pool_blocks = blocks;
  config.max_batch = options.batch_max_batch_size;
  config.max_queue = options.max_queue;
  config.step_tokens = options.step_tokens;
  config.max_context = model.decoder().max_context();
  config.vocab_size = model.vocab();
  config.us_per_class = options.us_per_class;
  config.inter_token_target_us = options.inter_token_target_us;
  config.max_slowdown_percent = options.max_slowdown_percent;
  config.prefix_cache = options.prefix_cache;
  config.hash_key = options.hash_key;
  return config;
}

}  // namespace

uint32_t default_pool_blocks(uint64_t free_bytes, uint64_t bytes_per_block, uint32_t max_context,
                             uint32_t max_batch) {
  const uint64_t context = blocks_for(max_context);
  const uint64_t fits = free_bytes / bytes_per_block;
  const uint64_t wanted =
      std::min(context * max_batch, std::max(fits / 2, std::min(context, fits)));
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, kMaxPoolBlocks));
}

SchedulerManager::Loader make_model_loader(const ServingOptions& options, ComputePool& pool,
                                           const Clock& clock) {
  return [options, &pool, &clock](
             const ModelConfig& config,
             const SchedulerManager::MakeRoom& make_room) -> Result<ServedModelParts> {
    ModelOptions wanted = model_options(options);
    wanted.admit = [&](uint64_t bytes) { return make_room(bytes).status(); };
    SKEIN_ASSIGN(std::unique_ptr<LoadedModel> loaded, LoadedModel::load(config.path, wanted, pool));
    const std::shared_ptr<LoadedModel> model = std::move(loaded);
    ServedModelParts parts;
    parts.model = model;
    parts.weight_bytes = model->decoder().packed_bytes();
    parts.workspace_bytes = model->decoder().workspace_bytes();
    const uint64_t taken = parts.weight_bytes + parts.workspace_bytes;
    const uint64_t block = model->kv_block_bytes();
    // At least one block, or what the user named.
    SKEIN_ASSIGN(const uint64_t room,
                 make_room(taken + block * std::max(1U, options.batch_block_pool_size)));
    const uint32_t blocks =
        options.batch_block_pool_size != 0
            ? options.batch_block_pool_size
            : default_pool_blocks(room - taken, block, model->decoder().max_context(),
                                  options.batch_max_batch_size);
    parts.kv_bytes = block * blocks;
    parts.enable_batching = options.enable_batching;
    parts.engine.scheduler = scheduler_config(options, *model, blocks);
    parts.engine.step_timeout_us = options.step_timeout_us;
    parts.engine.stall_timeout_us = options.stall_timeout_us;
    parts.make_runner = [model, blocks, &pool, &clock]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto cache, model->make_kv(blocks));
      return std::unique_ptr<StepRunner>(
          std::make_unique<ModelRunner>(model, std::move(cache), pool, clock));
    };
    parts.make_direct = [model, &clock] { return DirectInference::create(*model, clock); };
    return parts;
  };
}

}  // namespace skein
