// Attention over a paged cache, over all threads.
//
// A work item is one row and one kv head; the query heads that share it share its loads. When there
// are too few items for the threads, as when one long sequence decodes, an item is one span of the
// context as well, and the spans' partials are merged afterwards, in order: the same operations
// either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/workers.h"

namespace skein::cpu {

class Attention {
 public:
  Attention(Workers& workers, const KernelTable& kernels)
      : workers_(workers), kernels_(kernels), slots_(workers.slots()), partials_(1) {}

  // As Backend::attention.
  void run(Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
           const AttentionParams& params, Rows out);

 private:
  // A query row: the tokens [begin, end) of its sequence are visible.
  struct Query {
    size_t row;
    size_t begin, end;
    const BlockId* blocks;

    size_t first_span() const;
    size_t spans() const;  // that have something visible
  };
  // The op under way.
  struct Job {
    Rows q, out;
    const KvLayer& cache;
    const AttentionParams& params;
    size_t shared;          // query heads per kv head
    size_t partial_floats;  // of the `shared` partials of one span
  };

  void list_queries(std::span<const Sequence> sequences, uint32_t window);
  void attend_span(const Job& job, const Query& query, uint32_t kv_head, size_t span, float* scores,
                   float* partials) const;
  void merge(const Job& job, float* totals, const float* partials) const;
  void finish(const Job& job, const Query& query, uint32_t kv_head, const float* totals) const;
  void run_whole(const Job& job, size_t work);
  void run_by_span(const Job& job, size_t work, size_t max_spans);

  Workers& workers_;
  const KernelTable& kernels_;
  Scratch slots_;     // of a slot: scores, and partials of two spans
  Scratch partials_;  // of all items and spans
  std::vector<Query> queries_;
};

}  // namespace skein::cpu
