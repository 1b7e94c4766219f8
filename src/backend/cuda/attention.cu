// Attention over a paged cache, and the stores that fill it.
#include "backend/cuda/heads.cuh"
#include "backend/cuda/launch.cuh"

namespace skein::cuda {
namespace {

using arithmetic::fma;
using arithmetic::larger;

constexpr uint32_t kGroup = arithmetic::kGroup;
constexpr uint32_t kSpan = arithmetic::kSpanTokens;
static_assert(kSpan == kThreads && kGroup == kBlockTokens);

// A warp for each head: those of the queries are turned, those of the keys turned and stored, those
// of the values stored.
template <KvType kType>
void launch_turn_and_store(DeviceRows q, DeviceRows k, DeviceRows v, RopeLayout layout,
                           DeviceRows angles, const StepView& step, const DeviceKv& cache,
                           cudaStream_t stream) {
  const uint32_t query_heads = q.width / cache.head_dim, heads = query_heads + 2 * cache.heads;
  launch_warps(k.rows * heads, stream, [=] __device__(uint32_t item, uint32_t thread) {
    const uint32_t row = item / heads, head = item % heads;
    const bool is_query = head < query_heads, is_key = head < query_heads + cache.heads;
    const DeviceRows& from = is_query ? q : is_key ? k : v;
    const uint32_t own = is_query ? head : (head - query_heads) % cache.heads;
    float* const values = row_at(from, row) + size_t{own} * cache.head_dim;
    if (is_key && angles.data != nullptr) turn_head(values, layout, angles, row, thread);
    if (!is_query) store_row<kType>(values, is_key, RowSlot(step, row), own, cache, thread);
  });
}

// The sum of a(k) * b(k) over one group, of which [begin, end) is there: the even ones make one
// chain and the odd ones another.
template <class A, class B>
__device__ float group_sum(uint32_t begin, uint32_t end, const A& a, const B& b) {
  float even = 0, odd = 0;
  uint32_t k = begin;
  if (k < end && k % 2 == 1) {
    odd = fma(a(k), b(k), odd);
    ++k;
  }
#pragma unroll 4
  for (; k + 1 < end; k += 2) {
    even = fma(a(k), b(k), even);
    odd = fma(a(k + 1), b(k + 1), odd);
  }
  if (k < end) even = fma(a(k), b(k), even);
  return even + odd;
}

// The largest of a block's threads, for all of them.
__device__ float largest_of_block(float x) {
  __shared__ float of_warp[kThreads / kWarp];
  for (uint32_t half = kWarp / 2; half > 0; half /= 2) {
    x = larger(x, __shfl_xor_sync(0xffffffffU, x, half));
  }
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warp[0];
  for (uint32_t i = 1; i < kThreads / kWarp; ++i) x = larger(x, of_warp[i]);
  return x;
}

// What one block of threads works on: a query head of a row.
template <KvType kType>
struct HeadOfRow {
  const float* query;  // rounded, in shared memory
  float* weights;      // [kSpan] of shared memory
  const uint32_t* blocks;
  const DeviceKv& cache;
  uint32_t kv_head;

  __device__ float score(uint32_t token) const {
    const Half<kType> keys = keys_of<kType>(cache, blocks[token / kBlockTokens], kv_head);
    const uint32_t slot = token % kBlockTokens;
    float sum = 0;
    for (uint32_t first = 0; first < cache.head_dim; first += kGroup) {
      sum = sum + group_sum(
                      first, min(first + kGroup, cache.head_dim),
                      [&](uint32_t d) { return query[d]; },
                      [&](uint32_t d) { return keys.key(slot, d); });
    }
    return sum;
  }

  // Of the tokens [begin, end) of the span that starts with `first`.
  __device__ float weight_sum(uint32_t first, uint32_t begin, uint32_t end) const {
    float lane = 0;
    for (uint32_t t = first + threadIdx.x % kLaneThreads; t < end; t += kLaneThreads) {
      if (t >= begin) lane = lane + weights[t - first];
    }
    return sum_of_lanes(lane);
  }
  __device__ float value_sum(uint32_t first, uint32_t begin, uint32_t end, uint32_t d) const {
    float sum = 0;
    for (uint32_t block = begin / kGroup; block * kGroup < end; ++block) {
      const Half<kType> values = values_of<kType>(cache, blocks[block], kv_head);
      sum = sum + group_sum(
                      max(block * kGroup, begin), min(block * kGroup + kGroup, end),
                      [&](uint32_t t) { return weights[t - first]; },
                      [&](uint32_t t) { return values.value(t % kBlockTokens, d); });
    }
    return sum;
  }
};

// A softmax under way: the weights are relative to exp(max). All threads have the same one.
struct Running {
  float max = 0;
  float weight = 0;
};

template <KvType kType>
__global__ void __launch_bounds__(kThreads) attend_rows(DeviceRows q, StepView step, DeviceKv cache,
                                                        DeviceAttention params, DeviceRows out) {
  extern __shared__ float shared[];
  const uint32_t dim = cache.head_dim, row = blockIdx.x, head = blockIdx.y;
  float *const query = shared, *const total = shared + dim, *const weights = shared + 2 * dim;
  for (uint32_t d = threadIdx.x; d < dim; d += kThreads) {
    query[d] = rounded<kType>(row_at(q, row)[head * dim + d]);
  }
  __syncthreads();
  const HeadOfRow<kType> own{query, weights, step.blocks + step.first_blocks[row], cache,
                             head / (params.heads / cache.heads)};
  const uint32_t end = step.positions[row] + 1;
  const uint32_t begin = params.window == 0 || end <= params.window ? 0 : end - params.window;
  Running running;
  bool is_first = true;
  for (uint32_t first = begin / kSpan * kSpan; first < end; first += kSpan) {
    const uint32_t from = max(first, begin), to = min(first + kSpan, end);
    const uint32_t token = first + threadIdx.x;
    const bool is_seen = token >= from && token < to;
    const float score = is_seen ? arithmetic::cap(own.score(token) * params.scale, params.softcap)
                                : -arithmetic::kInfinity;
    const float span_max = largest_of_block(score);
    if (is_seen) weights[threadIdx.x] = rounded<kType>(arithmetic::exp(score - span_max));
    __syncthreads();
    const float span_weight = own.weight_sum(first, from, to);
    const float max = is_first ? span_max : larger(running.max, span_max);
    const float old_scale = arithmetic::exp(running.max - max);
    const float new_scale = arithmetic::exp(span_max - max);
    for (uint32_t d = threadIdx.x; d < dim; d += kThreads) {
      const float values = own.value_sum(first, from, to, d);
      total[d] = is_first ? values : fma(values, new_scale, total[d] * old_scale);
    }
    running.weight =
        is_first ? span_weight : fma(span_weight, new_scale, running.weight * old_scale);
    running.max = max;
    is_first = false;
    __syncthreads();  // before the next span's weights
  }
  float value_scale = 1;
  if (params.sinks != nullptr) {
    const float max = larger(running.max, params.sinks[head]);
    value_scale = arithmetic::exp(running.max - max);
    running.weight = fma(running.weight, value_scale, arithmetic::exp(params.sinks[head] - max));
  }
  const float inverse = 1.0F / running.weight;
  for (uint32_t d = threadIdx.x; d < dim; d += kThreads) {
    const float value = params.sinks == nullptr ? total[d] : total[d] * value_scale;
    row_at(out, row)[head * dim + d] = value * inverse;
  }
}

size_t shared_bytes(uint32_t head_dim) {
  return (2 * size_t{head_dim} + kSpan) * sizeof(float);
}

// fn(std::integral_constant) of a cache's type.
template <class Fn>
auto with_type(KvType type, const Fn& fn) {
  switch (type) {
    case KvType::kF32:
      return fn(std::integral_constant<KvType, KvType::kF32>());
    case KvType::kBf16:
      return fn(std::integral_constant<KvType, KvType::kBf16>());
    case KvType::kInt8:
      break;
  }
  return fn(std::integral_constant<KvType, KvType::kInt8>());
}

}  // namespace

void turn_and_store(DeviceRows q, DeviceRows k, DeviceRows v, RopeLayout layout, DeviceRows angles,
                    const StepView& step, const DeviceKv& cache, cudaStream_t stream) {
  with_type(cache.type, [&](auto type) {
    launch_turn_and_store<type()>(q, k, v, layout, angles, step, cache, stream);
  });
}

void attend(DeviceRows q, const StepView& step, const DeviceKv& cache,
            const DeviceAttention& params, DeviceRows out, cudaStream_t stream) {
  if (q.rows == 0) return;
  const dim3 grid(q.rows, params.heads);
  with_type(cache.type, [&](auto type) {
    attend_rows<type()>
        <<<grid, kThreads, shared_bytes(cache.head_dim), stream>>>(q, step, cache, params, out);
  });
}

}  // namespace skein::cuda
