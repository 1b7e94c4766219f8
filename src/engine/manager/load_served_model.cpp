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
  model.device_rows = options.device_step_tokens + scheduler.max_batch;
  return model;
}

void follow_model(SchedulerConfig& scheduler, const LoadedModel& model,
                  const ServingOptions& options) {
  scheduler.max_context = model.decoder().max_context();
  scheduler.vocab_size = model.vocab();
  if (model.device() != nullptr) scheduler.step_tokens = options.device_step_tokens;
  if (!model.spec().encoder) return;
  // Any text fits a step; its blocks are scratch memory of the step, at most one begun a text.
  scheduler.whole = true;
  scheduler.max_batch = scheduler.usual_batch();
  scheduler.sure_batch = 0;
  scheduler.step_tokens = std::max(scheduler.step_tokens, scheduler.max_context);
  scheduler.pool_blocks =
      static_cast<uint32_t>(blocks_for(scheduler.step_tokens)) + scheduler.max_batch;
}

// With its memory beside what the large one takes.
Result<std::shared_ptr<LoadedModel>> load_draft_model(const ServingOptions& options,
                                                      const LoadedModel& target,
                                                      const std::string& target_name,
                                                      const Admit& admit, ComputePool& pool) {
  if (target.device() != nullptr) {
    return invalid_argument(
        "draft model {}: {} computes on a GPU; guesses are made on the CPU alone",
        options.draft_model, target_name);
  }
  ModelOptions wanted = options.model;
  wanted.limits.rows = options.engine.scheduler.step_tokens;
  wanted.limits.logit_rows = options.engine.scheduler.max_batch;
  wanted.admit = admit;
  SKEIN_ASSIGN(std::unique_ptr<LoadedModel> draft,
               LoadedModel::load(options.draft_model, wanted, pool));
  SKEIN_TRY(DraftModel::check_vocabulary(*draft, options.draft_model, target, target_name));
  return std::shared_ptr<LoadedModel>(std::move(draft));
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
    uint64_t taken = parts.weight_bytes + parts.workspace_bytes;
    uint64_t block = model->kv_block_bytes();
    std::shared_ptr<LoadedModel> draft;
    if (!options.draft_model.empty() && !model->spec().encoder) {
      const Admit admit = [&](uint64_t bytes) { return make_room(taken + bytes).status(); };
      SKEIN_ASSIGN(draft, load_draft_model(options, *model, config.path, admit, pool));
      parts.weight_bytes += draft->decoder().packed_bytes();
      parts.workspace_bytes += draft->decoder().workspace_bytes();
      taken = parts.weight_bytes + parts.workspace_bytes;
      block += draft->kv_block_bytes();
    }
    parts.enable_batching = options.enable_batching;
    parts.engine = options.engine;
    SchedulerConfig& scheduler = parts.engine.scheduler;
    follow_model(scheduler, *model, options);
    // A GPU's steps are recorded by their shape, and what verifying costs there is not known yet.
    parts.engine.auto_speculates = model->device() == nullptr;
    // At least one block, or what the user named.
    SKEIN_ASSIGN(const uint64_t room,
                 make_room(taken + block * std::max(1U, scheduler.pool_blocks)));
    if (scheduler.pool_blocks == 0) {
      scheduler.pool_blocks =
          default_pool_blocks(room - taken, block, scheduler.max_context, scheduler.usual_batch());
    }
    if (options.kv_events) {
      const auto [feed, hash_key] = options.kv_events(config.id);
      scheduler.kv_events = feed != nullptr;
      if (feed) scheduler.hash_key = hash_key;
      parts.engine.kv_events = feed;
    }
    const uint32_t blocks = scheduler.pool_blocks;
    parts.kv_bytes = block * blocks;
    parts.make_runner = [model, blocks, &pool, &clock]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto cache, model->make_kv(blocks));
      return std::unique_ptr<StepRunner>(
          std::make_unique<ModelRunner>(model, std::move(cache), pool, clock));
    };
    if (draft != nullptr) {
      parts.engine.make_draft_model = [draft, model, blocks, &pool] {
        return DraftModel::create(draft, blocks, DraftModel::cost_milli(*draft, *model), pool);
      };
    }
    parts.make_direct = [model, &clock] { return DirectInference::create(*model, clock); };
    return parts;
  };
}

}  // namespace skein
