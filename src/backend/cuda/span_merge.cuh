// Spans of attention become one, in order.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/segment_sums.cuh"
#include "backend/cuda/tensor_attention.h"

namespace skein::cuda {

// A softmax over spans, of which the values' sums are relative to exp(largest).
struct RunningSoftmax {
  float largest, weight;

  // The sum of values so far, and the next span's.
  __device__ void add(bool is_first, float span_largest, float span_weight) {
    const float max = is_first ? span_largest : arithmetic::larger(largest, span_largest);
    old_scale = arithmetic::exp(largest - max);
    new_scale = arithmetic::exp(span_largest - max);
    weight = is_first ? span_weight : arithmetic::fma(span_weight, new_scale, weight * old_scale);
    largest = max;
  }
  __device__ float sum(bool is_first, float all, float of_span) const {
    return is_first ? of_span : arithmetic::fma(of_span, new_scale, all * old_scale);
  }

  // After the last span.
  __device__ void end(const float* sinks, uint32_t head) {
    has_sink = sinks != nullptr;
    if (has_sink) {
      const float sink = sinks[head], max = arithmetic::larger(largest, sink);
      old_scale = arithmetic::exp(largest - max);
      weight = arithmetic::fma(weight, old_scale, arithmetic::exp(sink - max));
    }
    new_scale = 1.0F / weight;
  }
  __device__ float result(float all) const {
    return (has_sink ? all * old_scale : all) * new_scale;
  }

  float old_scale = 0, new_scale = 0;
  bool has_sink = false;
};

template <uint32_t kCount>
struct MergedQuery {
  float value[kCount];
  RunningSoftmax softmax;
};

// kCount dimensions, from d on, of a head of a row.
template <uint32_t kCount>
__device__ inline MergedQuery<kCount> merge_query(const MergeParams& p, uint32_t row, uint32_t head,
                                                  uint32_t d) {
  constexpr uint32_t kSpan = arithmetic::kSpanTokens;
  const uint32_t position = p.step.positions[row], window = p.attention.window;
  const uint32_t begin = (window == 0 || position < window ? 0 : position + 1 - window) / kSpan;
  const uint32_t first = max(begin, p.first_span);
  const uint32_t end = min(position / kSpan + 1, p.first_span + p.spans);
  const size_t query = size_t{row} * p.attention.heads + head;
  MergedQuery<kCount> all{{}, {p.sums.running[2 * query], p.sums.running[2 * query + 1]}};
  if (p.first_span > begin) {
    for (uint32_t i = 0; i < kCount; ++i) {
      all.value[i] = row_at(p.out, row)[head * p.head_dim + d + i];
    }
  }
#pragma unroll 2
  for (uint32_t s = first; s < end; ++s) {
    const size_t at = query * p.spans + (s - p.first_span);
    const Outputs<kCount> value = load_outputs<kCount>(p.sums.values + at * p.head_dim + d);
    all.softmax.add(s == begin, p.sums.largest[at], p.sums.weights[at]);
    for (uint32_t i = 0; i < kCount; ++i) {
      all.value[i] = all.softmax.sum(s == begin, all.value[i], value.at[i]);
    }
  }
  if (!p.is_last) return all;
  all.softmax.end(p.attention.sinks, head);
  for (uint32_t i = 0; i < kCount; ++i) all.value[i] = all.softmax.result(all.value[i]);
  return all;
}

}  // namespace skein::cuda
