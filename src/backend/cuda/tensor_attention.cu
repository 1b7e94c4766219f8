// Attention over a cache of bfloat16 or int8 on tensor cores. A block of threads takes up to 16
// queries that share a head of the cache (heads of a row, and rows that follow each other) through
// one span of 256 tokens; what spans gave is merged in order by a kernel after it.
//
// Keys lie as [token][dimension], values as [dimension][token], so that the pairs that a thread
// gives to mma are side by side in memory.
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_attention.h"
#include "base/ids.h"

namespace skein::cuda {
namespace {

using arithmetic::fma;
using arithmetic::larger;

constexpr uint32_t kSpan = arithmetic::kSpanTokens;
constexpr uint32_t kQueries = 16, kWarps = 8, kGroup = 16;
constexpr uint32_t kWeightStride = kSpan + 8;  // so that rows lie in different banks
static_assert(kWarps * kWarp == kThreads && kWarps * kBlockTokens == kSpan);

// sums[16 rows of a][8 columns of b] += a * b over 16 inputs.
__device__ void add_products(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows lane / 4 and + 8 of a matrix of 16 rows in shared memory, columns k and + 8.
__device__ void load_rows(const uint16_t* matrix, uint32_t stride, uint32_t k, uint32_t lane,
                          uint32_t (&a)[4]) {
  const uint16_t* const at = matrix + lane / 4 * stride + k + lane % 4 * 2;
  a[0] = *reinterpret_cast<const uint32_t*>(at);
  a[1] = *reinterpret_cast<const uint32_t*>(at + 8 * stride);
  a[2] = *reinterpret_cast<const uint32_t*>(at + 8);
  a[3] = *reinterpret_cast<const uint32_t*>(at + 8 * stride + 8);
}

__device__ uint32_t pair_of(uint16_t low, uint16_t high) {
  return uint32_t{high} << 16 | low;
}

// Two neighbours of the keys or the values of a head in a block; their scales are those of tokens
// `first` and `second`.
template <KvType kType>
__device__ uint32_t load_pair(const std::byte* half, const DeviceKv& cache, uint32_t index,
                              uint32_t first, uint32_t second) {
  if constexpr (kType == KvType::kBf16) {
    return *reinterpret_cast<const uint32_t*>(half + size_t{index} * sizeof(uint16_t));
  }
  const auto* const scales =
      reinterpret_cast<const float*>(half + size_t{kBlockTokens} * cache.stride);
  const char2 q = *reinterpret_cast<const char2*>(half + index);
  return pair_of(arithmetic::round_to_bf16(scales[first] * static_cast<float>(q.x)),
                 arithmetic::round_to_bf16(scales[second] * static_cast<float>(q.y)));
}

__device__ bool is_finite_pair(uint32_t pair) {
  return (pair & 0x7f80U) != 0x7f80U && (pair & 0x7f800000U) != 0x7f800000U;
}

// The queries of a block of threads: `rows` rows that follow each other, `heads` heads of each.
struct Queries {
  uint32_t first_row, rows, first_head, heads;
  uint32_t position;  // of the first row
  const uint32_t* blocks;
  uint32_t kv_head;

  __device__ uint32_t count() const { return rows * heads; }
  __device__ uint32_t last() const { return position + rows - 1; }
  __device__ uint32_t position_of(uint32_t query) const { return position + query / heads; }
};

__device__ uint32_t first_seen(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

struct SpanParams {
  DeviceRows q;
  StepView step;
  DeviceKv cache;
  DeviceAttention attention;
  uint32_t first_span;
  uint32_t spans;       // at once
  uint32_t heads_each;  // heads of a block of threads
  uint32_t rows_each;
  SpanSums sums;
};

// False: the block of threads has nothing to do.
__device__ bool find_queries(const SpanParams& p, Queries& own) {
  const uint32_t row = blockIdx.x, group = p.attention.heads / p.cache.heads;
  if (p.step.places[row] % p.rows_each != 0) return false;
  const uint32_t parts = groups_of(group, p.heads_each);
  own.kv_head = blockIdx.y / parts;
  const uint32_t part = blockIdx.y % parts * p.heads_each;
  own.first_row = row;
  own.rows = min(p.rows_each, p.step.rows_left[row]);
  own.first_head = own.kv_head * group + part;
  own.heads = min(p.heads_each, group - part);
  own.position = p.step.positions[row];
  own.blocks = p.step.blocks + p.step.first_blocks[row];
  const uint32_t first = (p.first_span + blockIdx.z) * kSpan;
  return first <= own.last() && first + kSpan > first_seen(own.position, p.attention.window);
}

// Scores of 32 tokens, a block of the cache, by a warp: [tokens / 8][4] as mma has them.
template <KvType kType>
__device__ void score_block(const SpanParams& p, const Queries& own, const uint16_t* queries,
                            uint32_t query_stride, uint32_t first, uint32_t lane,
                            float (&scores)[4][4]) {
  const std::byte* const keys = p.cache.data +
                                own.blocks[first / kBlockTokens] * p.cache.block_bytes +
                                own.kv_head * 2 * p.cache.half_bytes;
#pragma unroll 4
  for (uint32_t k = 0; k < p.cache.stride; k += kGroup) {
    uint32_t a[4];
    load_rows(queries, query_stride, k, lane, a);
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      const uint32_t slot = n * 8 + lane / 4;
      const uint32_t at = slot * p.cache.stride + k + lane % 4 * 2;
      add_products(scores[n], a, load_pair<kType>(keys, p.cache, at, slot, slot),
                   load_pair<kType>(keys, p.cache, at + 8, slot, slot));
    }
  }
}

// Weighted values of dimensions [d, d + 8) over the tokens of a span.
template <KvType kType>
struct ValueSums {
  const SpanParams& p;
  const Queries& own;
  const uint16_t* weights;
  const std::byte* const* halves;  // of the blocks of the span, in shared memory
  uint32_t first, lane;

  // Tokens t and t + 1 of dimension d; what no query of ours sees is zero.
  __device__ uint32_t values(uint32_t t, uint32_t d) const {
    const uint32_t last = own.last(), begin = first_seen(own.position, p.attention.window);
    if (d >= p.cache.head_dim || t > last || t + 1 < begin) return 0;
    const uint32_t slot = t % kBlockTokens;
    const std::byte* const half = halves[(t - first) / kBlockTokens];
    uint32_t pair = load_pair<kType>(half, p.cache, d * kBlockTokens + slot, slot, slot + 1);
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
  __device__ void add(float (&sums)[4], uint32_t d) const {
    const uint32_t column = d + lane / 4;
    const uint32_t all_see = first_seen(own.last(), p.attention.window);
    constexpr uint32_t kAtOnce = 8;
    for (uint32_t base = 0; base < kSpan / kGroup; base += kAtOnce) {
      uint32_t b[kAtOnce][2];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t t = first + (base + i) * kGroup + lane % 4 * 2;
        b[i][0] = values(t, column);
        b[i][1] = values(t + 8, column);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t from = first + (base + i) * kGroup;
        uint32_t a[4];
        load_rows(weights, kWeightStride, (base + i) * kGroup, lane, a);
        const bool all_alike = from + kGroup - 1 <= own.position && from >= all_see;
        const bool finite = is_finite_pair(b[i][0]) && is_finite_pair(b[i][1]);
        if (!all_alike && __any_sync(0xffffffffU, !finite)) {
          add_one_by_one(sums, a, b[i][0], b[i][1], base + i);
        } else {
          add_products(sums, a, b[i][0], b[i][1]);
        }
      }
    }
  }
};

// The largest of each of a warp's rows lane / 4 and + 8 among the warps of a block.
__device__ void largest_of_rows(float (&largest)[2], uint32_t warp, uint32_t lane) {
  __shared__ float of_warp[kWarps][kQueries];
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t half = 2; half > 0; half /= 2) {
      largest[i] = larger(largest[i], __shfl_xor_sync(0xffffffffU, largest[i], half));
    }
    if (lane % 4 == 0) of_warp[warp][lane / 4 + i * 8] = largest[i];
  }
  __syncthreads();
  for (uint32_t i = 0; i < 2; ++i) {
    largest[i] = of_warp[0][lane / 4 + i * 8];
    for (uint32_t w = 1; w < kWarps; ++w) {
      largest[i] = larger(largest[i], of_warp[w][lane / 4 + i * 8]);
    }
  }
}

// Scores become weights in shared memory; what is not seen is 0. The largest score of each query
// is kept.
__device__ void weigh(const SpanParams& p, const Queries& own, uint32_t first, uint32_t warp,
                      uint32_t lane, float (&scores)[4][4], uint16_t* weights, float* largest_of) {
  float largest[2] = {-arithmetic::kInfinity, -arithmetic::kInfinity};
  bool seen[4][4];
  for (uint32_t n = 0; n < 4; ++n) {
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t query = lane / 4 + j / 2 * 8;
      const uint32_t token = first + warp * kBlockTokens + n * 8 + lane % 4 * 2 + j % 2;
      const uint32_t end = own.position_of(query);
      seen[n][j] =
          query < own.count() && token <= end && token >= first_seen(end, p.attention.window);
      if (!seen[n][j]) continue;
      scores[n][j] = arithmetic::cap(scores[n][j] * p.attention.scale, p.attention.softcap);
      largest[j / 2] = larger(largest[j / 2], scores[n][j]);
    }
  }
  largest_of_rows(largest, warp, lane);
  for (uint32_t n = 0; n < 4; ++n) {
    for (uint32_t i = 0; i < 2; ++i) {
      uint16_t pair[2] = {0, 0};
      for (uint32_t j = 0; j < 2; ++j) {
        if (!seen[n][2 * i + j]) continue;
        pair[j] = arithmetic::round_to_bf16(arithmetic::exp(scores[n][2 * i + j] - largest[i]));
      }
      uint16_t* const to =
          weights + (lane / 4 + i * 8) * kWeightStride + warp * kBlockTokens + n * 8 + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(to) = pair_of(pair[0], pair[1]);
    }
  }
  if (warp == 0 && lane % 4 == 0) {
    largest_of[lane / 4] = largest[0];
    largest_of[lane / 4 + 8] = largest[1];
  }
}

template <KvType kType>
__global__ void __launch_bounds__(kThreads, 3) attend_spans(const __grid_constant__ SpanParams p) {
  extern __shared__ uint16_t shared[];
  __shared__ float largest[kQueries];
  __shared__ const std::byte* value_halves[kWarps];
  let_next_kernel_begin();
  wait_for_kernel_before();
  Queries own;
  if (!find_queries(p, own)) return;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t first = (p.first_span + blockIdx.z) * kSpan, stride = p.cache.stride + 8;
  uint16_t *const queries = shared, *const weights = shared + kQueries * stride;
  if (const uint32_t block = first / kBlockTokens + threadIdx.x;
      threadIdx.x < kWarps && block * kBlockTokens <= own.last()) {
    value_halves[threadIdx.x] = p.cache.data + own.blocks[block] * p.cache.block_bytes +
                                (own.kv_head * 2 + 1) * p.cache.half_bytes;
  }
  for (uint32_t i = threadIdx.x; i < kQueries * p.cache.stride; i += kThreads) {
    const uint32_t query = i / p.cache.stride, d = i % p.cache.stride;
    uint16_t value = 0;
    if (query < own.count() && d < p.cache.head_dim) {
      const uint32_t head = own.first_head + query % own.heads;
      value = arithmetic::round_to_bf16(
          row_at(p.q, own.first_row + query / own.heads)[head * p.cache.head_dim + d]);
    }
    queries[query * stride + d] = value;
  }
  __syncthreads();
  float scores[4][4] = {};
  const uint32_t from = first + warp * kBlockTokens;
  if (from <= own.last() && from + kBlockTokens > first_seen(own.position, p.attention.window)) {
    score_block<kType>(p, own, queries, stride, from, lane, scores);
  }
  weigh(p, own, first, warp, lane, scores, weights, largest);
  __syncthreads();
  const uint32_t query = threadIdx.x / kLaneThreads;
  float sum = 0;
  for (uint32_t t = threadIdx.x % kLaneThreads; t < kSpan; t += kLaneThreads) {
    sum = sum + arithmetic::float_of_bf16(weights[query * kWeightStride + t]);
  }
  sum = sum_of_lanes(sum);
  const auto place_of = [&](uint32_t q) {
    const size_t row = own.first_row + q / own.heads, head = own.first_head + q % own.heads;
    return (row * p.attention.heads + head) * p.spans + blockIdx.z;
  };
  if (threadIdx.x % kLaneThreads == 0 && query < own.count()) {
    p.sums.largest[place_of(query)] = largest[query];
    p.sums.weights[place_of(query)] = sum;
  }
  const ValueSums<kType> values{p, own, weights, value_halves, first, lane};
  for (uint32_t d = warp * 8; d < p.cache.head_dim; d += kWarps * 8) {
    float of_values[4] = {};
    values.add(of_values, d);
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t q = lane / 4 + j / 2 * 8, column = d + lane % 4 * 2 + j % 2;
      if (q >= own.count() || column >= p.cache.head_dim) continue;
      p.sums.values[place_of(q) * p.cache.head_dim + column] = of_values[j];
    }
  }
}

struct MergeParams {
  StepView step;
  DeviceAttention attention;
  DeviceRows out;
  uint32_t head_dim;
  uint32_t first_span, spans;
  bool is_last;
  SpanSums sums;
};

// A query by a block of threads: spans in order, onto what those before gave.
__global__ void merge_spans(const __grid_constant__ MergeParams p) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const uint32_t row = blockIdx.x, head = blockIdx.y, position = p.step.positions[row];
  const uint32_t begin = first_seen(position, p.attention.window) / kSpan;
  const uint32_t first = max(begin, p.first_span);
  const uint32_t end = min(position / kSpan + 1, p.first_span + p.spans);
  const size_t query = size_t{row} * p.attention.heads + head;
  float* const out = row_at(p.out, row) + size_t{head} * p.head_dim;
  for (uint32_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
    float largest = p.sums.running[2 * query], weight = p.sums.running[2 * query + 1];
    float value = p.first_span > begin ? out[d] : 0.0F;
    for (uint32_t s = first; s < end; ++s) {
      const size_t at = query * p.spans + (s - p.first_span);
      const float span_largest = p.sums.largest[at], span_weight = p.sums.weights[at];
      const float span_value = p.sums.values[at * p.head_dim + d];
      if (s == begin) {
        largest = span_largest;
        weight = span_weight;
        value = span_value;
        continue;
      }
      const float max = larger(largest, span_largest);
      const float old_scale = arithmetic::exp(largest - max);
      const float new_scale = arithmetic::exp(span_largest - max);
      weight = fma(span_weight, new_scale, weight * old_scale);
      value = fma(span_value, new_scale, value * old_scale);
      largest = max;
    }
    if (p.is_last) {
      if (p.attention.sinks != nullptr) {
        const float sink = p.attention.sinks[head], max = larger(largest, sink);
        const float scale = arithmetic::exp(largest - max);
        weight = fma(weight, scale, arithmetic::exp(sink - max));
        value = value * scale;
      }
      value = value * (1.0F / weight);
    }
    out[d] = value;
    if (d == 0) {
      p.sums.next[2 * query] = largest;
      p.sums.next[2 * query + 1] = weight;
    }
  }
}

}  // namespace

SpanSums SpanSums::in(float* memory, uint32_t rows, uint32_t heads, uint32_t spans) {
  const size_t queries = size_t{rows} * heads;
  SpanSums sums;
  sums.running = memory;
  sums.next = sums.running + 2 * queries;
  sums.largest = sums.next + 2 * queries;
  sums.weights = sums.largest + queries * spans;
  sums.values = sums.weights + queries * spans;
  return sums;
}

size_t SpanSums::floats(uint32_t rows, uint32_t heads, uint32_t spans, uint32_t head_dim) {
  return size_t{rows} * heads * (4 + size_t{spans} * (2 + head_dim));
}

void attend_on_tensor_cores(DeviceRows q, const StepView& step, const DeviceKv& cache,
                            const DeviceAttention& params, const SpanBatch& batch, float* memory,
                            DeviceRows out, cudaStream_t stream) {
  if (q.rows == 0) return;
  const uint32_t group = params.heads / cache.heads, heads_each = min(group, kQueries);
  SpanSums sums = SpanSums::in(memory, q.rows, params.heads, batch.at_once);
  const size_t shared =
      (kQueries * (cache.stride + 8) + kQueries * kWeightStride) * sizeof(uint16_t);
  for (uint32_t first = 0; first < batch.spans; first += batch.at_once) {
    const uint32_t count = min(batch.at_once, batch.spans - first);
    const SpanParams span{q,     step,          cache,      params,
                          first, batch.at_once, heads_each, group > kQueries ? 1 : kQueries / group,
                          sums};
    const dim3 grid(q.rows, cache.heads * groups_of(group, heads_each), count);
    if (cache.type == KvType::kBf16) {
      launch_overlapped(attend_spans<KvType::kBf16>, grid, kThreads, shared, stream, span);
    } else {
      launch_overlapped(attend_spans<KvType::kInt8>, grid, kThreads, shared, stream, span);
    }
    const MergeParams merge{
        step, params, out, cache.head_dim, first, batch.at_once, first + count == batch.spans,
        sums};
    launch_overlapped(merge_spans, dim3(q.rows, params.heads), min(cache.head_dim, kThreads), 0,
                      stream, merge);
    std::swap(sums.running, sums.next);
  }
}

}  // namespace skein::cuda
