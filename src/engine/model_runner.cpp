#include "engine/model_runner.h"

#include <utility>

namespace skein {

ModelRunner::ModelRunner(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache,
                         ComputePool& pool, const Clock& clock)
    : model_(std::move(model)), cache_(std::move(cache)), pool_(pool), clock_(clock) {
  const BatchLimits& limits = model_->decoder().limits();
  tokens_.reserve(limits.rows);
  sequences_.reserve(limits.rows);
  logit_rows_.reserve(limits.logit_rows);
  sampling_.reserve(limits.logit_rows);
  for (size_t i = 0; i < pool_.threads(); ++i) scratches_.emplace_back(model_->backend().scan());
}

TimeUs ModelRunner::run(std::span<const PlanRow> rows, std::span<const RowTask> tasks,
                        std::span<RowOutput> outputs) {
  build(rows);
  const std::lock_guard turn(model_->turn());
  const TimeUs started = clock_.now();
  const HostRows logits = model_->backend().read(
      model_->decoder().forward({tokens_, sequences_, logit_rows_}, *cache_));
  const TimeUs ended = clock_.now();
  sample(tasks, logits, outputs);
  return ended - started;
}

void ModelRunner::build(std::span<const PlanRow> rows) {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  sampling_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlanRow& row = rows[i];
    Sequence sequence;
    sequence.first_row = static_cast<uint32_t>(tokens_.size());
    sequence.rows = row.count;
    sequence.start = row.start;
    sequence.writes_kv = row.writes_kv;
    sequence.blocks = row.blocks;
    sequences_.push_back(sequence);
    tokens_.insert(tokens_.end(), row.tokens.begin(), row.tokens.end());
    if (!row.samples) continue;
    logit_rows_.push_back(static_cast<uint32_t>(tokens_.size() - 1));
    sampling_.push_back(static_cast<uint32_t>(i));
  }
}

void ModelRunner::sample(std::span<const RowTask> tasks, const HostRows& logits,
                         std::span<RowOutput> outputs) {
  const size_t threads = scratches_.size();
  pool_.run(threads, [&](size_t thread) {
    for (size_t i = thread; i < sampling_.size(); i += threads) {
      const uint32_t row = sampling_[i];
      Result<SampledToken> sampled = tasks[row].sampler->sample(
          logits.row(i).first(model_->vocab()), tasks[row].position, scratches_[thread]);
      if (sampled.ok()) {
        outputs[row].sampled = *sampled;
      } else {
        outputs[row].status = sampled.status();
      }
    }
  });
}

}  // namespace skein
