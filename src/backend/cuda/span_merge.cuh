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

// The spans that a row sees: those of the batch are [first, end).
struct MergedSpans {
  uint32_t begin, first, end;

  __device__ MergedSpans(const MergeParams& p, uint32_t row) {
    constexpr uint32_t kSpan = arithmetic::kSpanTokens;
    const uint32_t position = p.step.positions[row], window = p.attention.window;
    begin = (window == 0 || position < window ? 0 : position + 1 - window) / kSpan;
    first = max(begin, p.first_span);
    end = min(position / kSpan + 1, p.first_span + p.spans);
  }
};

// Four dimensions, from d on, of a head of a row, whose spans are all in this batch.
__device__ inline Outputs<4> merge_query(const MergeParams& p, uint32_t row, uint32_t head,
                                         uint32_t d) {
  const MergedSpans spans(p, row);
  const size_t query = size_t{row} * p.attention.heads + head;
  Outputs<4> all{};
  RunningSoftmax softmax{};
#pragma unroll 2
  for (uint32_t s = spans.first; s < spans.end; ++s) {
    const size_t at = query * p.spans + s;
    const Outputs<4> value = load_outputs<4>(p.sums.values + at * p.head_dim + d);
    softmax.add(s == spans.begin, p.sums.largest[at], p.sums.weights[at]);
    for (uint32_t i = 0; i < 4; ++i) {
      all.at[i] = softmax.sum(s == spans.begin, all.at[i], value.at[i]);
    }
  }
  softmax.end(p.attention.sinks, head);
  for (uint32_t i = 0; i < 4; ++i) all.at[i] = softmax.result(all.at[i]);
  return all;
}

}  // namespace skein::cuda
