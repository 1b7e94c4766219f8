// Spans of attention become one, in order.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/segment_sums.cuh"
#include "backend/cuda/tensor_attention.h"

namespace skein::cuda {

template <uint32_t kCount>
struct MergedQuery {
  float value[kCount];
  float largest, weight;
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
  MergedQuery<kCount> all{{}, p.sums.running[2 * query], p.sums.running[2 * query + 1]};
  if (p.first_span > begin) {
    for (uint32_t i = 0; i < kCount; ++i) {
      all.value[i] = row_at(p.out, row)[head * p.head_dim + d + i];
    }
  }
#pragma unroll 2
  for (uint32_t s = first; s < end; ++s) {
    const size_t at = query * p.spans + (s - p.first_span);
    const float span_largest = p.sums.largest[at], span_weight = p.sums.weights[at];
    const Outputs<kCount> value = load_outputs<kCount>(p.sums.values + at * p.head_dim + d);
    const bool is_first = s == begin;
    const float max = is_first ? span_largest : arithmetic::larger(all.largest, span_largest);
    const float old_scale = arithmetic::exp(all.largest - max);
    const float new_scale = arithmetic::exp(span_largest - max);
    all.weight =
        is_first ? span_weight : arithmetic::fma(span_weight, new_scale, all.weight * old_scale);
    for (uint32_t i = 0; i < kCount; ++i) {
      all.value[i] = is_first ? value.at[i]
                              : arithmetic::fma(value.at[i], new_scale, all.value[i] * old_scale);
    }
    all.largest = max;
  }
  if (!p.is_last) return all;
  if (p.attention.sinks != nullptr) {
    const float sink = p.attention.sinks[head], max = arithmetic::larger(all.largest, sink);
    const float scale = arithmetic::exp(all.largest - max);
    all.weight = arithmetic::fma(all.weight, scale, arithmetic::exp(sink - max));
    for (uint32_t i = 0; i < kCount; ++i) all.value[i] = all.value[i] * scale;
  }
  const float inverse = 1.0F / all.weight;
  for (uint32_t i = 0; i < kCount; ++i) all.value[i] = all.value[i] * inverse;
  return all;
}

}  // namespace skein::cuda
