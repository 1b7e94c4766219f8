// Attention over a paged cache, over all threads.
//
// A work item is a tile, some rows of one sequence, and one kv head: neighbouring rows see nearly
// the same keys and values, and so do the query heads that share a kv head. When there are too few
// items for the threads, as when one long sequence decodes, an item is one span of the context as
// well, and the spans' partials are merged afterwards, in order: the same operations either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/workers.h"
#include "backend/host/kv.h"

namespace skein::cpu {

class Attention {
 public:
  Attention(Workers& workers, const KernelTable& kernels)
      : workers_(workers), kernels_(kernels), slots_(workers.slots()), partials_(1) {}

  // The attention of Backend::attend, after `before`, which may change q and the cache.
  void run(const Phase& before, Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
           const AttentionParams& params, Rows out);

 private:
  // Rows [first_row, first_row + rows) of the step: positions from `position` on.
  struct Tile {
    size_t first_row, rows;
    size_t position;
    size_t window;
    size_t seen_by_all;  // tokens; 0: a row sees up to itself
    const BlockId* blocks;

    size_t begin(size_t row) const;  // of what a row sees
    size_t end(size_t row) const { return seen_by_all != 0 ? seen_by_all : position + row + 1; }
    size_t first_span() const;  // that any row sees
    size_t spans() const;
  };
  // The op under way.
  struct Job {
    Rows q, out;
    const KvLayer& cache;
    const AttentionParams& params;
    size_t shared;          // query heads per kv head
    size_t tile_queries;    // at most
    size_t partial_floats;  // of the queries of a tile, for one span

    size_t query_floats() const { return tile_queries * cache.head_dim; }
    size_t widened_floats() const;
  };
  // The scratch that a slot works with.
  struct Memory {
    float *widened, *queries, *totals, *partials, *scores;
  };

  void list_tiles(std::span<const Sequence> sequences, const AttentionParams& params, size_t rows);
  Memory memory_of(const Job& job, size_t slot) const;
  const float* queries_of(const Job& job, const Tile& tile, uint32_t kv_head, float* memory) const;
  // `next` is the head that this thread will read after the span's, or nullptr.
  void attend_span(const Job& job, const Tile& tile, uint32_t kv_head, size_t span,
                   const float* queries, const Memory& memory, float* partials,
                   const std::byte* next) const;
  void merge(const Job& job, const Tile& tile, size_t span, float* totals,
             const float* partials) const;
  void finish(const Job& job, const Tile& tile, uint32_t kv_head, const float* totals) const;
  void run_whole(const Phase& before, const Job& job, size_t work);
  void run_by_span(const Phase& before, const Job& job, size_t work, size_t max_spans);

  Workers& workers_;
  const KernelTable& kernels_;
  Scratch slots_;
  Scratch partials_;  // of all items and spans
  std::vector<Tile> tiles_;
};

}  // namespace skein::cpu
