// Attention over a cache of bfloat16 or int8 on tensor cores, span by span; what spans gave is
// merged in order by a kernel after it. Caches of bfloat16 whose heads are of a usual size go
// through stream_attention.cu instead, row_attention.cu or prompt_attention.cu.
//
// Keys lie as [token][dimension], values as [dimension][token], so that the pairs that a thread
// gives to mma are side by side in memory.
#include "backend/cuda/span_merge.cuh"
#include "backend/cuda/spans.cuh"

namespace skein::cuda {
namespace {

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
      const uint32_t at = key_index(p.cache.stride, slot, k + lane % 4 * 2);
      const uint32_t after = key_index(p.cache.stride, slot, k + lane % 4 * 2 + 8);
      add_products(scores[n], a, load_pair<kType>(keys, p.cache, at, slot, slot),
                   load_pair<kType>(keys, p.cache, after, slot, slot));
    }
  }
}

// Weighted values of dimensions [d, d + 8) over the tokens of a span. `halves` are the values of
// the span's blocks, in shared memory.
template <KvType kType>
__device__ void add_values(const SpanValues& values, const uint16_t* weights,
                           const std::byte* const* halves, uint32_t d, float (&sums)[4]) {
  const DeviceKv& cache = values.p.cache;
  const uint32_t lane = values.lane, column = d + lane / 4;
  const auto load = [&](uint32_t t) {
    const uint32_t slot = t % kBlockTokens;
    if (column >= cache.head_dim || values.seen_of(~0U, t) == 0) return 0U;
    const std::byte* const half = halves[(t - values.first) / kBlockTokens];
    return values.seen_of(load_pair<kType>(half, cache, value_index(slot, column), slot, slot + 1),
                          t);
  };
  constexpr uint32_t kAtOnce = 8;
  for (uint32_t base = 0; base < kSpan / kGroup; base += kAtOnce) {
    uint32_t b[kAtOnce][2];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t t = values.first + (base + i) * kGroup + lane % 4 * 2;
      b[i][0] = load(t);
      b[i][1] = load(t + 8);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      uint32_t a[4];
      load_rows(weights, kWeightStride, (base + i) * kGroup, lane, a);
      values.add(sums, a, b[i][0], b[i][1], base + i);
    }
  }
}

template <KvType kType>
__global__ void __launch_bounds__(kThreads, 3) attend_spans(const __grid_constant__ SpanParams p) {
  extern __shared__ uint16_t shared[];
  __shared__ float largest[kQueries], sums_of_weights[kQueries];
  __shared__ const std::byte* value_halves[kWarps];
  let_next_kernel_begin();
  wait_for_kernel_before();
  Queries own;
  const SpanItem item{blockIdx.x, blockIdx.y, blockIdx.z};
  if (p.step.places[item.row] % p.rows_each != 0 || !find_queries(p, item, own)) return;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t first = (p.first_span + item.span) * kSpan, stride = p.cache.stride + 8;
  uint16_t *const queries = shared, *const weights = shared + kQueries * stride;
  if (const uint32_t block = first / kBlockTokens + threadIdx.x;
      threadIdx.x < kWarps && block * kBlockTokens <= own.last()) {
    value_halves[threadIdx.x] = p.cache.data + own.blocks[block] * p.cache.block_bytes +
                                (own.kv_head * 2 + 1) * p.cache.half_bytes;
  }
  load_queries(p, own, queries, stride);
  __syncthreads();
  float scores[4][4] = {};
  const uint32_t from = first + warp * kBlockTokens;
  const bool is_seen =
      from <= own.last() && from + kBlockTokens > first_seen(own.position, p.attention.window);
  if (is_seen) {
    score_block<kType>(p, own, queries, stride, from, lane, scores);
  }
  weigh(p, own, is_seen, first, warp, lane, scores, weights, largest);
  __syncthreads();
  sum_weights(own, weights, sums_of_weights);
  const SpanValues values{p, own, first, lane};
  const ValuePlaces places(p, own, item.span, lane);
  for (uint32_t d = warp * 8; d < p.cache.head_dim; d += kWarps * 8) {
    float sums[4] = {};
    add_values<kType>(values, weights, value_halves, d, sums);
    places.write(d, lane, sums);
  }
  __syncthreads();
  write_softmax(p, own, item.span, largest, sums_of_weights);
}

// What every span of a query is multiplied by on its way into the sum of all. All threads make them
// side by side, but for the maximum, which is a chain of comparisons.
struct SpanScales {
  static constexpr uint32_t kAtOnce = 128;  // spans
  float largest[kAtOnce], weights[kAtOnce], old_scales[kAtOnce], new_scales[kAtOnce];
  float maximum[kAtOnce + 1];  // from what was before the first on

  // Of `count` spans from `at` on; is_first: nothing was before them.
  __device__ void make(const SpanSums& sums, size_t at, uint32_t count, bool is_first,
                       float before) {
    __syncthreads();  // nobody reads those before
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      largest[i] = sums.largest[at + i];
      weights[i] = sums.weights[at + i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      maximum[0] = before;
      maximum[1] = is_first ? largest[0] : arithmetic::larger(before, largest[0]);
#pragma unroll 8
      for (uint32_t i = 1; i < count; ++i) {
        maximum[i + 1] = arithmetic::larger(maximum[i], largest[i]);
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      old_scales[i] = arithmetic::exp(maximum[i] - maximum[i + 1]);
      new_scales[i] = arithmetic::exp(largest[i] - maximum[i + 1]);
    }
    __syncthreads();
  }
};

// A query by a block of threads.
__global__ void __launch_bounds__(kThreads) merge_queries(const __grid_constant__ MergeParams p) {
  constexpr uint32_t kEach = kMostTensorHeadDim / kThreads;  // dimensions of a thread, at most
  __shared__ SpanScales scales;
  let_next_kernel_begin();
  wait_for_kernel_before();
  const uint32_t row = blockIdx.x, head = blockIdx.y;
  if (p.skips_prompts && is_of_prompt(p.step, row)) return;
  const MergedSpans spans(p, row);
  const size_t query = size_t{row} * p.attention.heads + head;
  float* const out = row_at(p.out, row) + size_t{head} * p.head_dim;
  RunningSoftmax softmax{p.sums.running[2 * query], p.sums.running[2 * query + 1]};
  float all[kEach] = {};
  const auto for_own = [&](const auto& fn) {
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      if (const uint32_t d = threadIdx.x + i * blockDim.x; d < p.head_dim) fn(d, all[i]);
    }
  };
  if (p.first_span > spans.begin) for_own([&](uint32_t d, float& value) { value = out[d]; });
  for (uint32_t s = spans.first; s < spans.end; s += SpanScales::kAtOnce) {
    const uint32_t count = min(SpanScales::kAtOnce, spans.end - s);
    const size_t at = query * p.spans + (s - p.first_span);
    scales.make(p.sums, at, count, s == spans.begin, softmax.largest);
    float weight = softmax.weight;
    for_own([&](uint32_t d, float& value) {
      const float* const of_spans = p.sums.values + at * p.head_dim + d;
      weight = softmax.weight;
#pragma unroll 8
      for (uint32_t i = 0; i < count; ++i) {
        const bool is_first = s + i == spans.begin;
        const float of_span = of_spans[size_t{i} * p.head_dim];
        softmax.old_scale = scales.old_scales[i];
        softmax.new_scale = scales.new_scales[i];
        value = softmax.sum(is_first, value, of_span);
        weight = softmax.sum(is_first, weight, scales.weights[i]);
      }
    });
    softmax.weight = weight;
    softmax.largest = scales.maximum[count];
  }
  if (threadIdx.x == 0) {
    p.sums.next[2 * query] = softmax.largest;
    p.sums.next[2 * query + 1] = softmax.weight;
  }
  if (p.is_last) softmax.end(p.attention.sinks, head);
  for_own([&](uint32_t d, float& value) { out[d] = p.is_last ? softmax.result(value) : value; });
}

// Keys that a block of threads has asked for ahead are worth more than another block of threads,
// as long as there are enough of these.
uint32_t rows_of_unit(uint32_t rows) {
  return std::clamp(rows / 128, 1U, 16U);
}

}  // namespace

SpanSums SpanSums::in(float* memory, uint32_t rows, uint32_t heads, uint32_t spans) {
  const size_t queries = size_t{rows} * heads;
  SpanSums sums;
  sums.running = memory;
  sums.next = sums.running + 2 * queries;
  sums.largest = sums.next + 2 * queries;
  sums.weights = sums.largest + queries * spans;
  // From a multiple of 16 bytes on.
  const size_t before = 2 * queries * (2 + spans);
  sums.values = memory + (before + 3) / 4 * 4;
  return sums;
}

size_t SpanSums::floats(uint32_t rows, uint32_t heads, uint32_t spans, uint32_t head_dim) {
  return size_t{rows} * heads * (4 + size_t{spans} * (2 + head_dim)) + 3;
}

cudaError_t set_up_attention() {
  for (const auto set_up : {set_up_streams, set_up_whole_rows, set_up_prompts}) {
    if (const cudaError_t error = set_up(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void merge_spans(const MergeParams& params, cudaStream_t stream) {
  launch_overlapped(merge_queries, dim3(params.out.rows, params.attention.heads),
                    min(params.head_dim, kThreads), 0, stream, params);
}

std::optional<MergeParams> attend_on_tensor_cores(const AttentionWork& work, const RowTiles& tiles,
                                                  cudaStream_t stream) {
  const auto& [heads, step, cache, attention, batch, memory, marks, out] = work;
  const uint32_t group = attention.heads / cache.heads, heads_each = std::min(group, kQueries),
                 parts = groups_of(group, heads_each);
  SpanSums sums = SpanSums::in(memory, out.rows, attention.heads, batch.at_once);
  const size_t shared = kQueries * (cache.stride + 8) * sizeof(uint16_t) + kWeightBytes;
  for (uint32_t first = 0;; first += batch.at_once) {
    const uint32_t count = min(batch.at_once, batch.spans - first);
    const SpanParams span{heads,
                          step,
                          cache,
                          attention,
                          first,
                          batch.at_once,
                          group,
                          parts,
                          heads_each,
                          group > kQueries ? 1 : kQueries / group,
                          batch.processors == 0 ? rows_of_unit(out.rows) : 1,
                          batch.has_prompts,
                          sums,
                          out,
                          tiles,
                          marks};
    if (batch.is_whole) {
      attend_whole_rows(span, batch.processors, stream);
      return std::nullopt;
    }
    if (batch.has_prompts && first == 0) {
      attend_prompts(span, stream);
      if (!batch.has_others) return std::nullopt;
    }
    const dim3 grid(out.rows, cache.heads * parts, count);
    if (is_streamed(cache)) {
      attend_streamed(span, grid, batch, stream);
    } else if (cache.type == KvType::kBf16) {
      launch_overlapped(attend_spans<KvType::kBf16>, grid, kThreads, shared, stream, span);
    } else {
      launch_overlapped(attend_spans<KvType::kInt8>, grid, kThreads, shared, stream, span);
    }
    const MergeParams merge{step,
                            attention,
                            out,
                            cache.head_dim,
                            first,
                            batch.at_once,
                            first + count == batch.spans,
                            batch.has_prompts,
                            sums};
    if (merge.is_last && !merge.skips_prompts) return merge;
    merge_spans(merge, stream);
    if (merge.is_last) return std::nullopt;
    std::swap(sums.running, sums.next);
  }
}

}  // namespace skein::cuda
