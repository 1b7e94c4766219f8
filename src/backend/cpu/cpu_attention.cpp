#include "backend/cpu/cpu_attention.h"

#include <algorithm>

#include "backend/arithmetic.h"

namespace skein::cpu {
namespace {

constexpr size_t kSpan = arithmetic::kSpanTokens;
constexpr size_t kSpanBlocks = kSpan / kBlockTokens;
// With fewer items than this for a slot, work is split by span.
constexpr size_t kItemsPerSlot = 4;

}  // namespace

size_t Attention::Query::first_span() const {
  return begin / kSpan;
}

size_t Attention::Query::spans() const {
  return (end + kSpan - 1) / kSpan - first_span();
}

void Attention::list_queries(std::span<const Sequence> sequences, uint32_t window) {
  queries_.clear();
  for (const Sequence& sequence : sequences) {
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      const size_t end = size_t{sequence.start} + i + 1;
      const size_t begin = window == 0 || end <= window ? 0 : end - window;
      queries_.push_back({size_t{sequence.first_row} + i, begin, end, sequence.blocks.data()});
    }
  }
}

void Attention::attend_span(const Job& job, const Query& query, uint32_t kv_head, size_t span,
                            float* scores, float* partials) const {
  const size_t start = span * kSpan;
  AttendSpan args{};
  args.queries = job.q.row(query.row) + kv_head * job.shared * job.cache.head_dim;
  args.count = job.shared;
  args.head_dim = job.cache.head_dim;
  args.begin = query.begin > start ? query.begin - start : 0;
  args.end = std::min(query.end - start, kSpan);
  args.scale = job.params.scale;
  args.softcap = job.params.softcap;
  args.scores = scores;
  args.partials = partials;
  const std::byte* blocks[kSpanBlocks] = {};
  for (size_t b = args.begin / kBlockTokens; b * kBlockTokens < args.end; ++b) {
    blocks[b] = job.cache.head(query.blocks[span * kSpanBlocks + b], kv_head);
  }
  args.blocks = blocks;
  (job.cache.type == KvType::kF32 ? kernels_.attend_span_f32 : kernels_.attend_span_bf16)(args);
}

void Attention::merge(const Job& job, float* totals, const float* partials) const {
  const size_t stride = size_t{job.cache.head_dim} + 2;
  for (size_t h = 0; h < job.shared; ++h) {
    kernels_.merge_partial(totals + h * stride, partials + h * stride, job.cache.head_dim);
  }
}

void Attention::finish(const Job& job, const Query& query, uint32_t kv_head,
                       const float* totals) const {
  const size_t dim = job.cache.head_dim;
  for (size_t h = 0; h < job.shared; ++h) {
    const size_t head = kv_head * job.shared + h;
    const float* const sink = job.params.sinks == nullptr ? nullptr : job.params.sinks + head;
    kernels_.finish_attention(totals + h * (dim + 2), sink, dim,
                              job.out.row(query.row) + head * dim);
  }
}

void Attention::run_whole(const Job& job, size_t work) {
  // Heads outermost: neighbouring rows of a sequence read the same keys and values.
  workers_.run(queries_.size() * job.cache.heads, work, [&](size_t slot, size_t item) {
    const Query& query = queries_[item % queries_.size()];
    const auto kv_head = static_cast<uint32_t>(item / queries_.size());
    float* const totals = slots_.slot(slot);
    float* const partials = totals + job.partial_floats;
    float* const scores = partials + job.partial_floats;
    for (size_t i = 0; i < query.spans(); ++i) {
      attend_span(job, query, kv_head, query.first_span() + i, scores, i == 0 ? totals : partials);
      if (i > 0) merge(job, totals, partials);
    }
    finish(job, query, kv_head, totals);
  });
}

void Attention::run_by_span(const Job& job, size_t work, size_t max_spans) {
  const size_t items = queries_.size() * job.cache.heads;
  partials_.ensure(items * max_spans * job.partial_floats);
  const auto partials = [&](size_t item, size_t i) {
    return partials_.slot(0) + (item * max_spans + i) * job.partial_floats;
  };
  workers_.run(items * max_spans, work, [&](size_t slot, size_t part) {
    const size_t item = part / max_spans, i = part % max_spans;
    const Query& query = queries_[item % queries_.size()];
    if (i >= query.spans()) return;
    attend_span(job, query, static_cast<uint32_t>(item / queries_.size()), query.first_span() + i,
                slots_.slot(slot), partials(item, i));
  });
  workers_.run(items, items * max_spans * job.partial_floats, [&](size_t, size_t item) {
    const Query& query = queries_[item % queries_.size()];
    for (size_t i = 1; i < query.spans(); ++i) merge(job, partials(item, 0), partials(item, i));
    finish(job, query, static_cast<uint32_t>(item / queries_.size()), partials(item, 0));
  });
}

void Attention::run(Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
                    const AttentionParams& params, Rows out) {
  list_queries(sequences, params.window);
  if (queries_.empty()) return;
  const size_t shared = params.heads / cache.heads;
  const Job job{q, out, cache, params, shared, shared * (size_t{cache.head_dim} + 2)};
  slots_.ensure(2 * job.partial_floats + shared * kSpan);
  size_t tokens = 0, max_spans = 0;
  for (const Query& query : queries_) {
    tokens += query.end - query.begin;
    max_spans = std::max(max_spans, query.spans());
  }
  const size_t work = tokens * q.width;
  if (max_spans > 1 && queries_.size() * cache.heads < kItemsPerSlot * workers_.slots()) {
    run_by_span(job, work, max_spans);
  } else {
    run_whole(job, work);
  }
}

}  // namespace skein::cpu
