// A loaded model as what is measured: DirectInference alone, BatchInferenceEngine for many.
#pragma once

#include <memory>

#include "base/compute_pool.h"
#include "bench/roofline.h"
#include "bench/run_benchmark.h"
#include "bench/workload.h"
#include "engine/loading/loaded_model.h"
#include "engine/manager/direct_inference.h"

namespace skein::bench {

class ModelTarget final : public BenchTarget {
 public:
  struct Options {
    bool prefix_cache = true;
    uint32_t step_tokens = 256;
    uint32_t pool_blocks = 0;  // 0: as many as a batch needs
    TimeUs inter_token_target_us = 0;
    uint32_t max_slowdown_percent = 250;
    uint32_t step_drafts = 0;  // guesses of a step, where requests ask for them
    // A small model that guesses too; nullptr: none. It computes with the same pool.
    std::shared_ptr<LoadedModel> draft_model = nullptr;
  };
  // The model's limits hold step_tokens, the largest batch and step_drafts. `pool` is the one it
  // computes with; both, and `clock`, must outlive the target.
  static Result<std::unique_ptr<ModelTarget>> create(std::shared_ptr<LoadedModel> model,
                                                     ComputePool& pool, const Options& options,
                                                     const Clock& clock);

  Result<uint32_t> generate(const BenchRequest& request, const std::function<void()>& on_token,
                            const std::atomic<bool>& cancel) override;
  Result<InferenceService::Owned<InferenceService>> start(
      uint32_t batch, std::span<const BenchRequest> requests) override;

 private:
  ModelTarget(std::shared_ptr<LoadedModel> model, ComputePool& pool, const Options& options,
              const Clock& clock)
      : model_(std::move(model)), pool_(pool), options_(options), clock_(clock) {}

  const std::shared_ptr<LoadedModel> model_;
  ComputePool& pool_;
  const Options options_;
  const Clock& clock_;
  std::unique_ptr<DirectInference> direct_;
};

// The items as ids: by the model's tokenizer, or made up where there is none. Refuses, with both
// numbers, what does not fit the context.
Result<std::vector<BenchRequest>> to_requests(std::span<const WorkItem> items,
                                              const LoadedModel& model);

ModelCosts costs_of(const LoadedModel& model);

}  // namespace skein::bench
