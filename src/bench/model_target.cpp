#include "bench/model_target.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/model_runner.h"

namespace skein::bench {
namespace {

// Blocks in which any `batch` of the requests fit, each with room to end in the middle of one.
uint32_t blocks_needed(uint32_t batch, std::span<const BenchRequest> requests) {
  std::vector<uint64_t> blocks;
  for (const BenchRequest& request : requests) {
    blocks.push_back(blocks_for(request.prompt.size() + request.max_tokens) + 1);
  }
  std::sort(blocks.begin(), blocks.end(), std::greater());
  blocks.resize(std::min<size_t>(blocks.size(), batch));
  const uint64_t sum = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
  return static_cast<uint32_t>(std::min<uint64_t>(sum, kMaxPoolBlocks));
}

}  // namespace

Result<std::unique_ptr<ModelTarget>> ModelTarget::create(std::shared_ptr<LoadedModel> model,
                                                         ComputePool& pool, const Options& options,
                                                         const Clock& clock) {
  std::unique_ptr<ModelTarget> target(new ModelTarget(std::move(model), pool, options, clock));
  SKEIN_ASSIGN(target->direct_, DirectInference::create(*target->model_, clock));
  return target;
}

Result<uint32_t> ModelTarget::generate(const BenchRequest& request,
                                       const std::function<void()>& on_token,
                                       const std::atomic<bool>& cancel) {
  DirectRequest wanted;
  wanted.prompt = request.prompt;
  wanted.max_tokens = request.max_tokens;
  wanted.sampling.temperature = request.temperature;
  wanted.sampling.ignore_eos = true;
  const auto pass_on = [&](const SampledToken&) {
    on_token();
    return true;
  };
  SKEIN_ASSIGN(const DirectOutcome outcome, direct_->generate(wanted, pass_on, &cancel));
  return outcome.cached_tokens;
}

Result<InferenceService::Owned<InferenceService>> ModelTarget::start(
    uint32_t batch, std::span<const BenchRequest> requests) {
  const uint32_t blocks =
      options_.pool_blocks != 0 ? options_.pool_blocks : blocks_needed(batch, requests);
  SKEIN_ASSIGN(auto cache, model_->make_kv(blocks));
  EngineOptions engine;
  engine.scheduler.pool_blocks = blocks;
  engine.scheduler.max_batch = batch;
  engine.scheduler.step_tokens = options_.step_tokens;
  engine.scheduler.max_context = model_->decoder().max_context();
  engine.scheduler.vocab_size = model_->vocab();
  engine.scheduler.inter_token_target_us = options_.inter_token_target_us;
  engine.scheduler.max_slowdown_percent = options_.max_slowdown_percent;
  engine.scheduler.prefix_cache = options_.prefix_cache;
  engine.scheduler.step_drafts = options_.step_drafts;
  engine.auto_speculates = model_->device() == nullptr;
  engine.stall_timeout_us = 3600 * kUsPerSecond;  // who measures may read one stream after another
  if (options_.draft_model != nullptr) {
    engine.make_draft_model = [this, blocks] {
      return DraftModel::create(options_.draft_model, blocks,
                                DraftModel::cost_milli(*options_.draft_model, *model_), pool_);
    };
  }
  SKEIN_ASSIGN(auto made, BatchInferenceEngine::create(std::make_unique<ModelRunner>(
                                                           model_, std::move(cache), pool_, clock_),
                                                       engine, clock_));
  return InferenceService::Owned<InferenceService>(std::move(made));
}

Result<std::vector<BenchRequest>> to_requests(std::span<const WorkItem> items,
                                              const LoadedModel& model) {
  const LoadedTokenizer* const tokenizer = model.tokenizer();
  std::vector<BenchRequest> requests;
  for (const WorkItem& item : items) {
    BenchRequest request;
    request.max_tokens = item.max_tokens;
    if (tokenizer != nullptr && !item.text.empty()) {
      SKEIN_ASSIGN(request.prompt, tokenizer->tokenizer.encode(item.text, {.add_special = true}));
    } else {
      request.prompt = made_up_tokens(item, model.vocab());
    }
    const uint64_t needed = request.prompt.size() + request.max_tokens;
    if (needed > model.decoder().max_context()) {
      return out_of_range(
          "request {} has {} prompt tokens and {} to generate, {} together; the context is {}",
          requests.size() + 1, request.prompt.size(), request.max_tokens, needed,
          model.decoder().max_context());
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

ModelCosts costs_of(const LoadedModel& model) {
  const ModelSpec& spec = model.decoder().spec();
  uint64_t weights = uint64_t{spec.vocab} * spec.hidden;  // the output matrix
  for (const LayerSpec& layer : spec.layers) {
    weights += uint64_t{spec.hidden} * (spec.qkv_width() + spec.q_width());
    const uint64_t inner =
        layer.experts ? uint64_t{spec.experts->used} * spec.experts->ffn : spec.ffn;
    weights += spec.hidden * inner * (spec.activation.gated() ? 3 : 2);
  }
  ModelCosts costs;
  costs.weight_bytes = model.decoder().weight_bytes();
  costs.kv_bytes_per_token = model.kv_block_bytes() / kBlockTokens;
  costs.operations_per_row = 2 * weights;
  // A product with the key, a product with the value.
  costs.operations_per_pair = 4ULL * spec.q_width() * spec.layers.size();
  return costs;
}

}  // namespace skein::bench
