#include "engine/manager/load_served_model.h"

#include <algorithm>
#include <utility>

#include "engine/loop/model_runner.h"

namespace skein {
namespace {

ModelOptions model_options(const ServingOptions& options) {
  ModelOptions model = options.model;
  // Decode rows run beside a full prefill budget.
  const SchedulerConfig& scheduler = options.engine.scheduler;
  model.limits.rows = scheduler.step_tokens + scheduler.max_batch;
  model.limits.logit_rows = scheduler.max_batch + scheduler.step_drafts;
  return model;
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
    wanted.sampling.values = config.sampling;
    wanted.admit = [&](uint64_t bytes) { return make_room(bytes).status(); };
    SKEIN_ASSIGN(std::unique_ptr<LoadedModel> loaded, LoadedModel::load(config.path, wanted, pool));
    const std::shared_ptr<LoadedModel> model = std::move(loaded);
    ServedModelParts parts;
    parts.model = model;
    parts.weight_bytes = model->decoder().packed_bytes();
    parts.workspace_bytes = model->decoder().workspace_bytes();
    const uint64_t taken = parts.weight_bytes + parts.workspace_bytes;
    const uint64_t block = model->kv_block_bytes();
    parts.enable_batching = options.enable_batching;
    parts.engine = options.engine;
    SchedulerConfig& scheduler = parts.engine.scheduler;
    scheduler.max_context = model->decoder().max_context();
    scheduler.vocab_size = model->vocab();
    // A GPU's steps are recorded by their shape, and what verifying costs there is not known yet.
    parts.engine.auto_speculates = model->device() == nullptr;
    if (model->spec().encoder) {
      // Any text fits a step; its blocks are scratch memory of the step, at most one begun a text.
      scheduler.whole = true;
      scheduler.max_batch = scheduler.usual_batch();
      scheduler.sure_batch = 0;
      scheduler.step_tokens = std::max(scheduler.step_tokens, scheduler.max_context);
      scheduler.pool_blocks =
          static_cast<uint32_t>(blocks_for(scheduler.step_tokens)) + scheduler.max_batch;
    }
    // At least one block, or what the user named.
    SKEIN_ASSIGN(const uint64_t room,
                 make_room(taken + block * std::max(1U, scheduler.pool_blocks)));
    if (scheduler.pool_blocks == 0) {
      scheduler.pool_blocks =
          default_pool_blocks(room - taken, block, scheduler.max_context, scheduler.usual_batch());
    }
    const uint32_t blocks = scheduler.pool_blocks;
    parts.kv_bytes = block * blocks;
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
