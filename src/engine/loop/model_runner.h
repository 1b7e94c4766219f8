// ModelRunner: a StepRunner over a real model. Segments become one pass of the decoder, and those
// that sample are split over the compute workers. It owns the KV bytes.
//
// On a device that draws tokens itself (Backend::make_draw_queue) a step that needs nothing else of
// its logits is queued when it is started, behind the one before, from which it takes its tokens
// there; the host learns of them later. Other steps are computed when they are finished, and none
// is started behind them.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "engine/loading/loaded_model.h"
#include "engine/loop/step_runner.h"

namespace skein {

class ModelRunner final : public StepRunner {
 public:
  // Of a row of a step: a few tenths of a millisecond.
  static constexpr uint64_t kFormWork = 20'000;

  // The model's limits must hold the largest step that the scheduler plans; `pool` is the one that
  // the model computes with. To say what forms allow, a step takes `form_work` for each row that it
  // samples: half of it is the row's own, the other half goes to those that need more. A token that
  // takes more than what is left is put off.
  ModelRunner(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache, ComputePool& pool,
              const Clock& clock, uint64_t form_work = kFormWork);

  std::optional<SamplerScratch> patient_scratch() const override { return scratches_[0].patient(); }
  uint32_t depth() const override { return queue_ == nullptr ? 1 : kDepth; }
  bool samples_ahead(const RequestSampler& sampler) const override { return sampler.only_draws(); }
  bool takes_another() const override;
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override;
  TimeUs finish(const StepOutput& output) override;
  StepWaits waits() const override { return waits_; }

 private:
  static constexpr uint32_t kDepth = 2;
  struct Sampling {
    size_t segment;
    size_t logit;  // number of its first logit row
  };
  // A step that was started.
  struct Started {
    std::span<const Segment> segments;
    std::span<const RequestSampler* const> samplers;
    std::vector<Sampling> sampling;
    bool queued = false;
    bool follows = false;  // one that was under way
    TimeUs at = 0;
  };

  bool can_queue() const;
  void queue();
  TimeUs compute(const StepOutput& output);
  void build();
  void add_token_of_step_before(RequestId request);
  bool find_peaks(Rows rows);
  void copy_hidden(const StepOutput& output) const;
  void sample(const HostRows& logits, const StepOutput& output);
  void put_off(const RequestSampler& sampler, std::span<const float> logits, SegmentResult& result,
               SegmentDetails& details) const;
  void sample_segment(size_t index, size_t logit, const HostRows& logits, SamplerScratch& scratch,
                      const StepOutput& output) const;

  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<KvCache> cache_;
  ComputePool& pool_;
  const Clock& clock_;

  std::unique_ptr<DrawQueue> queue_;  // nullptr: every step is computed when it is finished
  std::deque<Started> started_;       // oldest first
  TimeUs last_finish_ = 0;
  StepWaits waits_;
  // Of the latest search, in the order of its rows: whose tokens they are, and the next one to ask.
  std::vector<RequestId> found_for_;
  size_t next_found_ = 0;
  std::vector<Draw> draws_;  // of a search

  // The step that is built or sampled.
  std::span<const Segment> segments_;
  std::span<const RequestSampler* const> samplers_;
  std::vector<Sampling> sampling_;

  // Its batch, kept for the memory.
  std::vector<TokenId> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> logit_rows_;
  std::vector<BlockId> scratch_;  // of an encoder: all of the cache's, for the step's texts in turn
  bool wants_hidden_ = false;
  std::vector<Argmax> peaks_;  // of the logit rows, where they are all that it takes
  const uint64_t form_work_;
  grammar::SharedWork shared_work_;        // of a step
  std::vector<SamplerScratch> scratches_;  // one per compute thread
};

}  // namespace skein
