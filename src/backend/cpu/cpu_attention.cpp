#include "backend/cpu/cpu_attention.h"

#include <algorithm>

#include "backend/arithmetic.h"

namespace skein::cpu {
namespace {

constexpr size_t kSpan = arithmetic::kSpanTokens;
constexpr size_t kSpanBlocks = kSpan / kBlockTokens;
// With fewer items than this for a slot, work is split by span.
constexpr size_t kItemsPerSlot = 4;
// Query heads of a tile, where one row does not have more.
constexpr size_t kTileQueries = 16;

}  // namespace

size_t Attention::Tile::begin(size_t row) const {
  return window == 0 || end(row) <= window ? 0 : end(row) - window;
}

size_t Attention::Tile::first_span() const {
  return begin(0) / kSpan;
}

size_t Attention::Tile::spans() const {
  return (end(rows - 1) + kSpan - 1) / kSpan - first_span();
}

void Attention::list_tiles(std::span<const Sequence> sequences, const AttentionParams& params,
                           size_t rows) {
  tiles_.clear();
  for (const Sequence& sequence : sequences) {
    const size_t all = params.sees_all ? size_t{sequence.start} + sequence.rows : 0;
    for (size_t i = 0; i < sequence.rows; i += rows) {
      tiles_.push_back({sequence.first_row + i, std::min(rows, sequence.rows - i),
                        sequence.start + i, params.window, all, sequence.blocks.data()});
    }
  }
}

size_t Attention::Job::widened_floats() const {
  if (cache.type != KvType::kInt8) return 0;
  return KvLayer::half_bytes(cache.head_dim, KvType::kBf16) / sizeof(float);
}

Attention::Memory Attention::memory_of(const Job& job, size_t slot) const {
  float* const widened = slots_.slot(slot);  // first: it wants to be aligned
  float* const queries = widened + job.widened_floats();
  float* const totals = queries + job.query_floats();
  float* const partials = totals + job.partial_floats;
  return {widened, queries, totals, partials, partials + job.partial_floats};
}

// [rows * shared][head_dim], rounded where the cache is.
const float* Attention::queries_of(const Job& job, const Tile& tile, uint32_t kv_head,
                                   float* memory) const {
  const size_t width = job.shared * job.cache.head_dim;
  for (size_t row = 0; row < tile.rows; ++row) {
    const float* const from = row_of(job.q, tile.first_row + row) + kv_head * width;
    if (job.cache.type == KvType::kF32) {
      std::copy_n(from, width, memory + row * width);
    } else {
      kernels_.round_bf16(from, width, memory + row * width);
    }
  }
  return memory;
}

void Attention::attend_span(const Job& job, const Tile& tile, uint32_t kv_head, size_t span,
                            const float* queries, const Memory& memory, float* partials,
                            const std::byte* next) const {
  const size_t start = span * kSpan;
  size_t begin[kTileQueries] = {}, end[kTileQueries] = {};
  for (size_t row = 0; row < tile.rows; ++row) {
    begin[row] = std::max(tile.begin(row), start) - start;
    end[row] = std::min(std::max(tile.end(row), start) - start, kSpan);
  }
  AttendSpan args{};
  args.queries = queries;
  args.rows = tile.rows;
  args.shared = job.shared;
  args.head_dim = job.cache.head_dim;
  args.begin = begin;
  args.end = end;
  args.scale = job.params.scale;
  args.softcap = job.params.softcap;
  args.scores = memory.scores;
  args.partials = partials;
  args.widened = reinterpret_cast<std::byte*>(memory.widened);
  const std::byte* blocks[kSpanBlocks] = {};
  // Rows see ever more to the right, and with a window ever less to the left.
  for (size_t b = begin[0] / kBlockTokens; b * kBlockTokens < end[tile.rows - 1]; ++b) {
    blocks[b] = job.cache.head(tile.blocks[span * kSpanBlocks + b], kv_head);
  }
  args.blocks = blocks;
  args.next = next;
  switch (job.cache.type) {
    case KvType::kF32:
      return kernels_.attend_span_f32(args);
    case KvType::kBf16:
      return kernels_.attend_span_bf16(args);
    case KvType::kInt8:
      return kernels_.attend_span_int8(args);
  }
}

// The partials of `span` into the totals, of the rows that see it.
void Attention::merge(const Job& job, const Tile& tile, size_t span, float* totals,
                      const float* partials) const {
  const size_t stride = size_t{job.cache.head_dim} + 2, row_floats = job.shared * stride;
  for (size_t row = 0; row < tile.rows; ++row, totals += row_floats, partials += row_floats) {
    const size_t first = tile.begin(row) / kSpan;
    if (span < first || span * kSpan >= tile.end(row)) continue;
    if (span == first) {
      std::copy_n(partials, row_floats, totals);
      continue;
    }
    for (size_t h = 0; h < job.shared; ++h) {
      kernels_.merge_partial(totals + h * stride, partials + h * stride, job.cache.head_dim);
    }
  }
}

void Attention::finish(const Job& job, const Tile& tile, uint32_t kv_head,
                       const float* totals) const {
  const size_t dim = job.cache.head_dim;
  for (size_t row = 0; row < tile.rows; ++row) {
    for (size_t h = 0; h < job.shared; ++h, totals += dim + 2) {
      const size_t head = kv_head * job.shared + h;
      const float* const sink = job.params.sinks ? raw(job.params.sinks) + head : nullptr;
      kernels_.finish_attention(totals, sink, dim,
                                row_of(job.out, tile.first_row + row) + head * dim);
    }
  }
}

void Attention::run_whole(const Phase& before, const Job& job, size_t work) {
  // Heads outermost: neighbouring tiles of a sequence read the same keys and values.
  const auto attend = [&](size_t slot, size_t item) {
    const Tile& tile = tiles_[item % tiles_.size()];
    const auto kv_head = static_cast<uint32_t>(item / tiles_.size());
    const Memory memory = memory_of(job, slot);
    const float* const queries = queries_of(job, tile, kv_head, memory.queries);
    for (size_t i = 0; i < tile.spans(); ++i) {
      const size_t span = tile.first_span() + i;
      // What follows is read from its first block on, by this thread.
      const std::byte* const next =
          i + 1 < tile.spans() ? job.cache.head(tile.blocks[(span + 1) * kSpanBlocks], kv_head)
                               : nullptr;
      attend_span(job, tile, kv_head, span, queries, memory, memory.partials, next);
      merge(job, tile, span, memory.totals, memory.partials);
    }
    finish(job, tile, kv_head, memory.totals);
  };
  workers_.run({before, Phase(tiles_.size() * job.cache.heads, work, attend)});
}

void Attention::run_by_span(const Phase& before, const Job& job, size_t work, size_t max_spans) {
  const size_t items = tiles_.size() * job.cache.heads;
  partials_.ensure(items * max_spans * job.partial_floats);
  const auto partials = [&](size_t item, size_t i) {
    return partials_.slot(0) + (item * max_spans + i) * job.partial_floats;
  };
  const auto attend = [&](size_t slot, size_t part) {
    const size_t item = part / max_spans, i = part % max_spans;
    const Tile& tile = tiles_[item % tiles_.size()];
    if (i >= tile.spans()) return;
    const auto kv_head = static_cast<uint32_t>(item / tiles_.size());
    const Memory memory = memory_of(job, slot);
    attend_span(job, tile, kv_head, tile.first_span() + i,
                queries_of(job, tile, kv_head, memory.queries), memory, partials(item, i), nullptr);
  };
  const auto join = [&](size_t slot, size_t item) {
    const Tile& tile = tiles_[item % tiles_.size()];
    float* const totals = memory_of(job, slot).totals;
    for (size_t i = 0; i < tile.spans(); ++i) {
      merge(job, tile, tile.first_span() + i, totals, partials(item, i));
    }
    finish(job, tile, static_cast<uint32_t>(item / tiles_.size()), totals);
  };
  workers_.run({before, Phase(items * max_spans, work, attend),
                Phase(items, items * max_spans * job.partial_floats, join)});
}

void Attention::run(const Phase& before, Rows q, std::span<const Sequence> sequences,
                    const KvLayer& cache, const AttentionParams& params, Rows out) {
  const size_t shared = params.heads / cache.heads;
  const size_t tile_rows = std::max<size_t>(1, kTileQueries / shared);
  list_tiles(sequences, params, tile_rows);
  if (tiles_.empty()) return;
  const size_t queries = tile_rows * shared;
  const Job job{q, out, cache, params, shared, queries, queries * (size_t{cache.head_dim} + 2)};
  slots_.ensure(job.widened_floats() + job.query_floats() + 2 * job.partial_floats +
                queries * kSpan);
  size_t tokens = 0, max_spans = 0;
  for (const Tile& tile : tiles_) {
    tokens += tile.rows * (tile.end(tile.rows - 1) - tile.begin(0));
    max_spans = std::max(max_spans, tile.spans());
  }
  const size_t work = tokens * q.width;
  if (max_spans > 1 && tiles_.size() * cache.heads < kItemsPerSlot * workers_.slots()) {
    run_by_span(before, job, work, max_spans);
  } else {
    run_whole(before, job, work);
  }
}

}  // namespace skein::cpu
