#include "engine/evaluation/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace skein {
namespace {

// A logit less this is a log-probability.
double log_sum_exp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

ptrdiff_t top_of(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace

// A list on its way through the model.
struct Evaluator::Running {
  size_t list = 0;
  std::vector<TokenId> tokens;  // the list and what was generated
  uint32_t computed = 0;
  uint32_t end = 0;  // tokens to compute in all
  std::vector<BlockId> blocks;

  bool done() const { return computed >= end; }
};

namespace {

// Tokens to put through the model: the last generated one need not go.
uint64_t tokens_to_compute(const std::vector<TokenId>& list, const Evaluator::Options& options) {
  return list.size() + (options.greedy > 0 ? options.greedy - 1 : 0);
}

}  // namespace

Status Evaluator::check(std::span<const std::vector<TokenId>> lists, const Options& options) const {
  const uint32_t vocab = model_.decoder().spec().vocab;
  const uint32_t context = model_.decoder().max_context();
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].empty()) return invalid_argument("list {} is empty; it needs at least 1 id", i);
    for (size_t j = 0; j < lists[i].size(); ++j) {
      const TokenId id = lists[i][j];
      if (id < 0 || static_cast<uint32_t>(id) >= vocab) {
        return invalid_argument("list {}, index {}: id {}; the vocabulary has {}", i, j, id, vocab);
      }
    }
    if (tokens_to_compute(lists[i], options) > context) {
      return out_of_range("list {} has {} ids and {} to generate; the context holds {}", i,
                          lists[i].size(), options.greedy, context);
    }
  }
  return {};
}

Status Evaluator::run(std::span<const std::vector<TokenId>> lists, const Options& options,
                      const OnRow& on_row) {
  SKEIN_TRY(check(lists, options));
  // As many lists side by side as can have a row of logits each; more would only take memory.
  const size_t side_by_side = model_.decoder().limits().logit_rows;
  for (size_t first = 0; first < lists.size(); first += side_by_side) {
    const size_t count = std::min(side_by_side, lists.size() - first);
    SKEIN_TRY(run_group(lists.subspan(first, count), first, options, on_row));
  }
  return {};
}

Status Evaluator::run_group(std::span<const std::vector<TokenId>> lists, size_t first,
                            const Options& options, const OnRow& on_row) {
  std::vector<Running> group(lists.size());
  uint32_t blocks = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    Running& running = group[i];
    running.list = first + i;
    running.tokens = lists[i];
    running.end = static_cast<uint32_t>(tokens_to_compute(lists[i], options));
    for (uint64_t b = blocks_for(running.end); b > 0; --b) running.blocks.emplace_back(blocks++);
  }
  SKEIN_ASSIGN(const std::unique_ptr<KvCache> cache, model_.make_kv(blocks));
  while (std::any_of(group.begin(), group.end(), [](const Running& r) { return !r.done(); })) {
    step(group, options, *cache, on_row);
  }
  return {};
}

// One pass over what is pending, as far as the decoder's limits go; the lists in order.
void Evaluator::step(std::span<Running> group, const Options& options, KvCache& cache,
                     const OnRow& on_row) {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  std::vector<Running*> owners;  // of sequences_
  for (Running& running : group) {
    if (!running.done() && take(running, options)) owners.push_back(&running);
  }
  const HostRows logits =
      model_.backend().read(model_.decoder().forward({tokens_, sequences_, logit_rows_}, cache));
  size_t next = 0;  // of logit_rows_
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const uint32_t end = sequence.first_row + sequence.rows;
    for (; next < logit_rows_.size() && logit_rows_[next] < end; ++next) {
      deliver(*owners[i], sequence.start + logit_rows_[next] - sequence.first_row, logits.row(next),
              on_row);
    }
    owners[i]->computed += sequence.rows;
  }
}

// Adds what fits of a list's pending tokens to the batch. False when nothing does.
bool Evaluator::take(const Running& running, const Options& options) {
  const DecoderLimits& limits = model_.decoder().limits();
  const auto first_row = static_cast<uint32_t>(tokens_.size());
  const auto wanted = static_cast<uint32_t>(running.tokens.size()) - running.computed;
  const auto logit_room = limits.logit_rows - static_cast<uint32_t>(logit_rows_.size());
  uint32_t rows = std::min(wanted, limits.rows - first_row);
  if (options.all) rows = std::min(rows, logit_room);
  if (rows == 0 || logit_room == 0) return false;
  const auto begin = running.tokens.begin() + running.computed;
  tokens_.insert(tokens_.end(), begin, begin + rows);
  sequences_.push_back({first_row, rows, running.computed, true, running.blocks});
  if (options.all) {
    for (uint32_t i = 0; i < rows; ++i) logit_rows_.push_back(first_row + i);
  } else if (rows == wanted) {
    logit_rows_.push_back(first_row + rows - 1);
  }
  return true;
}

// Hands logits over, and generates from them where a list goes on.
void Evaluator::deliver(Running& running, uint32_t position, std::span<const float> logits,
                        const OnRow& on_row) {
  on_row({running.list, position, logits});
  if (position + 1 < running.tokens.size() || running.tokens.size() >= running.end) return;
  running.tokens.push_back(static_cast<TokenId>(model_.backend().scan().argmax(logits).index));
}

void Divergence::add(std::span<const float> reference, std::span<const float> measured,
                     TokenId next) {
  SKEIN_CHECK(reference.size() == measured.size() && !reference.empty(),
              "{} logits against {} of the reference", measured.size(), reference.size());
  const double measured_sum = log_sum_exp(measured);
  // Both sums over the reference at once, since most of the time goes into exponentials.
  const double top = *std::max_element(reference.begin(), reference.end());
  double sum = 0, differences = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double p = std::exp(reference[i] - top);
    sum += p;
    if (p > 0) differences += p * (double{reference[i]} - double{measured[i]});
  }
  const double reference_sum = top + std::log(sum);
  const double kl = differences / sum - reference_sum + measured_sum;
  kl_.push_back(kl);
  same_top_ += top_of(reference) == top_of(measured) ? 1 : 0;
  if (next == kNoToken) return;
  ++predicted_;
  log_loss_ += measured_sum - measured[static_cast<size_t>(next)];
  reference_log_loss_ += reference_sum - reference[static_cast<size_t>(next)];
}

Divergence::Summary Divergence::summary() const {
  Summary out;
  out.positions = kl_.size();
  if (kl_.empty()) return out;
  std::vector<double> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  for (const double kl : sorted) out.mean_kl += kl / static_cast<double>(sorted.size());
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(sorted.size())));
  out.p99_kl = sorted[rank - 1];
  out.max_kl = sorted.back();
  out.same_top = static_cast<double>(same_top_) / static_cast<double>(sorted.size());
  if (predicted_ == 0) return out;
  out.perplexity = std::exp(log_loss_ / static_cast<double>(predicted_));
  out.reference_perplexity = std::exp(reference_log_loss_ / static_cast<double>(predicted_));
  return out;
}

}  // namespace skein
