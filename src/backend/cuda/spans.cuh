// What all ways through a span of attention on tensor cores share (tensor_attention.cu and
// span_ring.cuh): a block of threads, 8 warps of it, takes up to 16 queries that share a head
// of the cache (heads of a row, and rows that follow each other) through one span of 256 tokens.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_attention.h"
#include "base/ids.h"

namespace skein::cuda {

inline constexpr uint32_t kSpan = arithmetic::kSpanTokens, kSpanBlocks = kSpan / kBlockTokens;
inline constexpr uint32_t kQueries = 16, kWarps = 8, kGroup = 16;
inline constexpr uint32_t kMostStride = 256;          // dimensions that is_streamed takes
inline constexpr uint32_t kWeightStride = kSpan + 8;  // so that rows lie in different banks
inline constexpr uint32_t kWeightBytes = kQueries * kWeightStride * sizeof(uint16_t);
static_assert(kWarps * kWarp == kThreads && kWarps * kBlockTokens == kSpan);

// sums[16 rows of a][8 columns of b] += a * b over 16 inputs.
__device__ inline void add_products(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows lane / 4 and + 8 of a matrix of 16 rows in shared memory, columns k and + 8.
__device__ inline void load_rows(const uint16_t* matrix, uint32_t stride, uint32_t k, uint32_t lane,
                                 uint32_t (&a)[4]) {
  const uint16_t* const at = matrix + lane / 4 * stride + k + lane % 4 * 2;
  a[0] = *reinterpret_cast<const uint32_t*>(at);
  a[1] = *reinterpret_cast<const uint32_t*>(at + 8 * stride);
  a[2] = *reinterpret_cast<const uint32_t*>(at + 8);
  a[3] = *reinterpret_cast<const uint32_t*>(at + 8 * stride + 8);
}

__device__ inline uint32_t pair_of(uint16_t low, uint16_t high) {
  return uint32_t{high} << 16 | low;
}

// Two numbers of which none is subnormal, as round_to_bf16 rounds them.
__device__ inline uint32_t rounded_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline bool is_finite_pair(uint32_t pair) {
  return (pair & 0x7f80U) != 0x7f80U && (pair & 0x7f800000U) != 0x7f800000U;
}

// query / heads of a block's queries, without a division.
struct RowOfQuery {
  uint32_t share;

  __host__ __device__ static constexpr RowOfQuery of(uint32_t heads) {
    return {(256 + heads - 1) / heads};
  }
  __host__ __device__ constexpr uint32_t at(uint32_t query) const { return query * share / 256; }
  static constexpr bool is_right() {
    for (uint32_t heads = 1; heads <= kQueries; ++heads) {
      for (uint32_t query = 0; query < kQueries; ++query) {
        if (of(heads).at(query) != query / heads) return false;
      }
    }
    return true;
  }
};
static_assert(RowOfQuery::is_right());

// The queries of a block of threads: `rows` rows that follow each other, `heads` heads of each.
struct Queries {
  uint32_t first_row, rows, first_head, heads;
  RowOfQuery row_of;
  uint32_t position;  // of the first row
  const uint32_t* blocks;
  uint32_t kv_head;

  __device__ uint32_t count() const { return rows * heads; }
  __device__ uint32_t last() const { return position + rows - 1; }
  __device__ uint32_t position_of(uint32_t query) const { return position + row_of.at(query); }
  __device__ uint32_t row_at(uint32_t query) const { return first_row + row_of.at(query); }
  __device__ uint32_t head_at(uint32_t query) const {
    return first_head + query - row_of.at(query) * heads;
  }
};

__device__ inline uint32_t first_seen(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

__device__ inline bool is_of_prompt(const StepView& step, uint32_t row) {
  const uint32_t left = step.rows_left[row];
  return is_long_prompt(step.places[row] + left, step.positions[row] + left);
}

struct SpanParams {
  DeviceHeads heads;
  StepView step;
  DeviceKv cache;
  DeviceAttention attention;
  uint32_t first_span;
  uint32_t spans;       // at once
  uint32_t group;       // heads that share one of the cache
  uint32_t parts;       // of them, for a block of threads each
  uint32_t heads_each;  // heads of a block of threads
  uint32_t rows_each;
  uint32_t rows_of_unit;  // that a block of threads goes through, item after item
  bool skips_prompts;
  SpanSums sums;
  DeviceRows out;  // these are for whole rows
  RowTiles tiles;
  uint32_t* marks;
};

// Where a block of threads works: the first row, the part of its heads, the span of the batch.
struct SpanItem {
  uint32_t row, heads, span;
};

// The row is one with which queries begin (StepView::places). False: there is nothing to do.
__device__ inline bool find_queries(const SpanParams& p, const SpanItem& item, Queries& own) {
  const uint32_t row = item.row;
  own.kv_head = p.parts == 1 ? item.heads : item.heads / p.parts;
  const uint32_t part = (item.heads - own.kv_head * p.parts) * p.heads_each;
  own.first_row = row;
  own.rows = min(p.rows_each, p.step.rows_left[row]);
  own.first_head = own.kv_head * p.group + part;
  own.heads = min(p.heads_each, p.group - part);
  own.row_of = RowOfQuery::of(own.heads);
  own.position = p.step.positions[row];
  own.blocks = p.step.blocks + p.step.first_blocks[row];
  const uint32_t first = (p.first_span + item.span) * kSpan;
  return first <= own.last() && first + kSpan > first_seen(own.position, p.attention.window);
}

// The queries as bfloat16 rows of shared memory, `stride` apart, with zeros where there is none, by
// 16 threads each.
__device__ inline void load_queries(const SpanParams& p, const Queries& own, uint16_t* queries,
                                    uint32_t stride) {
  static_assert(kQueries * kLaneThreads == kThreads);
  const uint32_t query = threadIdx.x / kLaneThreads;
  const bool is_one = query < own.count();
  const float* const from =
      is_one ? row_at(p.heads.rows[0], own.row_at(query)) + own.head_at(query) * p.cache.head_dim
             : nullptr;
  // Loads of a pass are all under way before the first is waited for.
  constexpr uint32_t kPairs = 4;
  for (uint32_t first = 0; first < p.cache.stride; first += 2 * kPairs * kLaneThreads) {
    float values[kPairs][2];
#pragma unroll
    for (uint32_t i = 0; i < 2 * kPairs; ++i) {
      const uint32_t d = first + (i / 2 * kLaneThreads + threadIdx.x % kLaneThreads) * 2 + i % 2;
      values[i / 2][i % 2] = 0;
      if (is_one && d < p.cache.head_dim) values[i / 2][i % 2] = from[d];
    }
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) {
      const uint32_t d = first + (i * kLaneThreads + threadIdx.x % kLaneThreads) * 2;
      if (d >= p.cache.stride) continue;
      *reinterpret_cast<uint32_t*>(queries + query * stride + d) =
          pair_of(arithmetic::round_to_bf16(values[i][0]), arithmetic::round_to_bf16(values[i][1]));
    }
  }
}

// All of the 8 warps have come here.
__device__ inline void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// The largest of each of a warp's rows lane / 4 and + 8 among the warps of a block.
__device__ inline void largest_of_rows(float (&largest)[2], uint32_t warp, uint32_t lane) {
  __shared__ float of_warp[kWarps][kQueries];
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t half = 2; half > 0; half /= 2) {
      largest[i] = arithmetic::larger(largest[i], __shfl_xor_sync(0xffffffffU, largest[i], half));
    }
    if (lane % 4 == 0) of_warp[warp][lane / 4 + i * 8] = largest[i];
  }
  sync_multipliers();
  for (uint32_t i = 0; i < 2; ++i) {
    largest[i] = of_warp[0][lane / 4 + i * 8];
    for (uint32_t w = 1; w < kWarps; ++w) {
      largest[i] = arithmetic::larger(largest[i], of_warp[w][lane / 4 + i * 8]);
    }
  }
}

// The tokens that a query sees: those of [begin, begin + count).
struct SeenTokens {
  uint32_t begin = 0, count = 0;

  __device__ SeenTokens(const SpanParams& p, const Queries& own, uint32_t query) {
    if (query >= own.count()) return;
    const uint32_t end = own.position_of(query);
    begin = first_seen(end, p.attention.window);
    count = end + 1 - begin;
  }
  __device__ bool has(uint32_t token) const { return token - begin < count; }
};

// Few models have it: it is no part of the code of the others.
static __device__ __noinline__ float capped(float score, float softcap) {
  return arithmetic::cap(score, softcap);
}

// The weights of 8 tokens for a query, two for each thread.
__device__ inline void put_weights(uint16_t* weights, uint32_t query, uint32_t token, uint32_t lane,
                                   uint32_t pair) {
  *reinterpret_cast<uint32_t*>(weights + query * kWeightStride + token + lane % 4 * 2) = pair;
}

// Scores become weights in shared memory; what is not seen is 0. The largest score of each query
// is kept. Nothing is computed for eight queries that are not there, or for a block that none sees
// (is_seen).
__device__ inline void weigh(const SpanParams& p, const Queries& own, bool is_seen, uint32_t first,
                             uint32_t warp, uint32_t lane, float (&scores)[4][4], uint16_t* weights,
                             float* largest_of) {
  const uint32_t queries = is_seen ? own.count() : 0;
  float largest[2] = {-arithmetic::kInfinity, -arithmetic::kInfinity};
  const bool caps = p.attention.softcap != 0;
  const uint32_t place = warp * kBlockTokens, token = first + place + lane % 4 * 2;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    if (i * 8 >= queries) break;
    const SeenTokens seen(p, own, lane / 4 + i * 8);
#pragma unroll
    for (uint32_t e = 0; e < 8; ++e) {
      float& score = scores[e / 2][2 * i + e % 2];
      score = score * p.attention.scale;
      if (caps) score = capped(score, p.attention.softcap);
      const float larger = arithmetic::larger(largest[i], score);
      largest[i] = seen.has(token + e / 2 * 8 + e % 2) ? larger : largest[i];
    }
  }
  largest_of_rows(largest, warp, lane);
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t query = lane / 4 + i * 8;
    if (i * 8 >= queries) {
      for (uint32_t n = 0; n < 4; ++n) put_weights(weights, query, place + n * 8, lane, 0);
      continue;
    }
    const SeenTokens seen(p, own, query);
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      float pair[2];
      for (uint32_t j = 0; j < 2; ++j) {
        const float weight = arithmetic::exp(scores[n][2 * i + j] - largest[i]);
        pair[j] = seen.has(token + n * 8 + j) ? weight : 0.0F;
      }
      put_weights(weights, query, place + n * 8, lane, rounded_pair(pair[0], pair[1]));
    }
  }
  if (warp == 0 && lane % 4 == 0) {
    largest_of[lane / 4] = largest[0];
    largest_of[lane / 4 + 8] = largest[1];
  }
}

// Where the sums of a query go.
__device__ inline size_t place_of(const SpanParams& p, const Queries& own, uint32_t span,
                                  uint32_t query) {
  const size_t row = own.row_at(query), head = own.head_at(query);
  return (row * p.attention.heads + head) * p.spans + span;
}

// The sums of weights, by 16 threads for each query.
__device__ inline void sum_weights(const Queries& own, const uint16_t* weights, float* sums) {
  const uint32_t query = threadIdx.x / kLaneThreads;
  if (threadIdx.x / kWarp * (kWarp / kLaneThreads) >= own.count()) return;  // a whole warp
  // What no query sees is zero.
  const uint16_t* const first = weights + query * kWeightStride + threadIdx.x % kLaneThreads;
  float sum = 0;
#pragma unroll
  for (uint32_t t = 0; t < kSpan; t += kLaneThreads) {
    sum = sum + arithmetic::float_of_bf16(first[t]);
  }
  sum = sum_of_lanes(sum);
  if (threadIdx.x % kLaneThreads == 0) sums[query] = sum;
}

// What a span gave but for its values, once all have come to know it.
__device__ inline void write_softmax(const SpanParams& p, const Queries& own, uint32_t span,
                                     const float* largest, const float* sums) {
  const uint32_t query = threadIdx.x;
  if (query >= own.count()) return;
  p.sums.largest[place_of(p, own, span, query)] = largest[query];
  p.sums.weights[place_of(p, own, span, query)] = sums[query];
}

// Where a thread's weighted values go, as mma has them: those of queries lane / 4 and + 8.
struct ValuePlaces {
  float* of_query[2];
  uint32_t head_dim;

  __device__ ValuePlaces(const SpanParams& p, const Queries& own, uint32_t span, uint32_t lane)
      : head_dim(p.cache.head_dim) {
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t query = lane / 4 + i * 8;
      of_query[i] =
          query >= own.count() ? nullptr : p.sums.values + place_of(p, own, span, query) * head_dim;
    }
  }
  // Of 8 dimensions, from d on.
  __device__ void write(uint32_t d, uint32_t lane, const float (&sums)[4]) const {
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t column = d + lane % 4 * 2 + j % 2;
      if (of_query[j / 2] != nullptr && column < head_dim) of_query[j / 2][column] = sums[j];
    }
  }
};

// How values meet weights in groups of 16 tokens of the span that begins with `first`.
struct SpanValues {
  const SpanParams& p;
  const Queries& own;
  uint32_t first, lane;

  // Whether some query of ours sees all of tokens [from, from + count).
  __device__ bool all_are_seen(uint32_t from, uint32_t count) const {
    return from + count - 1 <= own.last() && from >= first_seen(own.position, p.attention.window);
  }
  // Tokens t and t + 1; what no query of ours sees is zero.
  __device__ uint32_t seen_of(uint32_t pair, uint32_t t) const {
    const uint32_t last = own.last(), begin = first_seen(own.position, p.attention.window);
    if (t > last || t + 1 < begin) return 0;
    if (t + 1 > last) pair &= 0x0000ffffU;
    if (t < begin) pair &= 0xffff0000U;
    return pair;
  }
  // A value that is not finite must not reach a query that does not see it, not even times zero.
  __device__ void add_one_by_one(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                 uint32_t group) const {
    const uint32_t t = first + group * kGroup + lane % 4 * 2;
    for (uint32_t query = 0; query < own.count(); ++query) {
      const uint32_t end = own.position_of(query);
      const uint32_t begin = first_seen(end, p.attention.window);
      const auto seen = [&](uint32_t pair, uint32_t token) {
        if (token < begin || token > end) pair &= 0xffff0000U;
        if (token + 1 < begin || token + 1 > end) pair &= 0x0000ffffU;
        return pair;
      };
      float with[4] = {sums[0], sums[1], sums[2], sums[3]};
      add_products(with, a, seen(b0, t), seen(b1, t + 8));
      if (query == lane / 4) {
        sums[0] = with[0];
        sums[1] = with[1];
      } else if (query == lane / 4 + 8) {
        sums[2] = with[2];
        sums[3] = with[3];
      }
    }
  }
  // Whether every query of ours sees all of tokens [from, from + count).
  __device__ bool all_see(uint32_t from, uint32_t count) const {
    return from + count - 1 <= own.position && from >= first_seen(own.last(), p.attention.window);
  }
  __device__ void add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                      uint32_t group) const {
    const bool finite = is_finite_pair(b0) && is_finite_pair(b1);
    if (!all_see(first + group * kGroup, kGroup) && __any_sync(0xffffffffU, !finite)) {
      add_one_by_one(sums, a, b0, b1, group);
    } else {
      add_products(sums, a, b0, b1);
    }
  }
};

// Heads of a cache of bfloat16 that have a place in the ring of span_ring.cuh, and attention over
// them; all: rows, parts of heads, spans of the batch.
bool is_streamed(const DeviceKv& cache);
cudaError_t set_up_streams();
void attend_streamed(const SpanParams& params, dim3 all, const SpanBatch& batch,
                     cudaStream_t stream);
cudaError_t set_up_whole_rows();
void attend_whole_rows(const SpanParams& params, uint32_t processors, cudaStream_t stream);
cudaError_t set_up_prompts();
void attend_prompts(const SpanParams& params, cudaStream_t stream);

}  // namespace skein::cuda
