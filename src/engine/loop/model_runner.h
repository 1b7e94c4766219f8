// ModelRunner: a StepRunner over a real model. Segments become one pass of the decoder, and those
// that sample are split over the compute workers. It owns the KV bytes.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "engine/loading/loaded_model.h"
#include "engine/loop/step_runner.h"

namespace skein {

class ModelRunner final : public StepRunner {
 public:
  // The model's limits must hold the largest step that the scheduler plans; `pool` is the one that
  // the model computes with.
  ModelRunner(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache, ComputePool& pool,
              const Clock& clock);

  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override;
  TimeUs finish(const StepOutput& output) override;

 private:
  void build();
  bool find_peaks(Rows rows);
  void copy_hidden(const StepOutput& output) const;
  void sample(const HostRows& logits, const StepOutput& output);
  void sample_segment(size_t index, size_t logit, const HostRows& logits, SamplerScratch& scratch,
                      const StepOutput& output) const;

  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<KvCache> cache_;
  ComputePool& pool_;
  const Clock& clock_;

  // The step that was started.
  std::span<const Segment> segments_;
  std::span<const RequestSampler* const> samplers_;

  // Its batch, kept for the memory.
  std::vector<TokenId> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> logit_rows_;
  std::vector<BlockId> scratch_;  // of an encoder: all of the cache's, for the step's texts in turn
  bool wants_hidden_ = false;
  struct Sampling {
    size_t segment;
    size_t logit;  // number of its first logit row
  };
  std::vector<Sampling> sampling_;
  std::vector<Argmax> peaks_;              // of the logit rows, where they are all that it takes
  std::vector<SamplerScratch> scratches_;  // one per compute thread
};

}  // namespace skein
