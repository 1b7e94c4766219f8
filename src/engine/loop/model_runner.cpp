#include "engine/loop/model_runner.h"

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

// Everything is computed in finish(): on the CPU there is nothing to do meanwhile.
void ModelRunner::start(std::span<const PlanRow> rows, std::span<const RowTask> tasks) {
  rows_ = rows;
  tasks_ = tasks;
}

TimeUs ModelRunner::finish(std::span<RowOutput> outputs) {
  build();
  const std::lock_guard turn(model_->turn());
  const TimeUs started = clock_.now();
  const HostRows logits = model_->backend().read(
      model_->decoder().forward({tokens_, sequences_, logit_rows_}, *cache_));
  const TimeUs ended = clock_.now();
  sample(logits, outputs);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!rows_[i].ends) continue;
    outputs[i].status = {Code::kUnimplemented, "the decoder gives no hidden state"};
  }
  return ended - started;
}

void ModelRunner::build() {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  sampling_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const PlanRow& row = rows_[i];
    SKEIN_CHECK(!row.token_from_previous, "request {}: a token is awaited that no step samples",
                row.request.value);
    Sequence sequence;
    sequence.first_row = static_cast<uint32_t>(tokens_.size());
    sequence.rows = row.count;
    sequence.start = row.start;
    sequence.writes_kv = row.writes_kv;
    sequence.blocks = row.blocks;
    sequences_.push_back(sequence);
    tokens_.insert(tokens_.end(), row.tokens.begin(), row.tokens.end());
    tokens_.insert(tokens_.end(), row.drafts.begin(), row.drafts.end());
    if (row.samples > 0) sampling_.push_back({i, logit_rows_.size()});
    for (uint32_t n = row.samples; n > 0; --n) {
      logit_rows_.push_back(static_cast<uint32_t>(tokens_.size() - n));
    }
  }
}

void ModelRunner::sample(const HostRows& logits, std::span<RowOutput> outputs) {
  const size_t threads = scratches_.size();
  pool_.run(threads, [&](size_t thread) {
    for (size_t i = thread; i < sampling_.size(); i += threads) {
      const auto [row, logit] = sampling_[i];
      sample_row(row, logit, logits, scratches_[thread], outputs[row]);
    }
  });
}

// A token is sampled after each draft that came true.
void ModelRunner::sample_row(size_t row, size_t logit, const HostRows& logits,
                             SamplerScratch& scratch, RowOutput& output) const {
  const std::span<const TokenId> drafts = rows_[row].drafts;
  const RowTask& task = tasks_[row];
  for (uint32_t n = 0; n < rows_[row].samples; ++n) {
    const Result<SampledToken> sampled = task.sampler->sample(
        logits.row(logit + n).first(model_->vocab()), task.position + n, scratch, drafts.first(n));
    if (!sampled.ok()) {
      output.status = sampled.status();
      return;
    }
    output.sampled.push_back(*sampled);
    if (sampled->stop || sampled->last) return;
    if (n < drafts.size() && sampled->token != drafts[n]) return;
  }
}

}  // namespace skein
