#include "backend/reference/attention.h"

#include <algorithm>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/f16_products.h"

namespace skein::reference {
namespace {

using arithmetic::exp;
using arithmetic::fma;
using arithmetic::larger;

// A softmax under way: the weights are relative to exp(max).
struct Partial {
  float max = 0;
  float weight = 0;
  std::vector<float> values;  // the weighted sum; empty: nothing yet
};

// As attention over such a cache has its numbers.
float rounded(float x, KvType type) {
  return type == KvType::kF32 ? x : arithmetic::float_of_bf16(arithmetic::round_to_bf16(x));
}

// One head of a sequence's cache.
struct Head {
  std::span<const BlockId> blocks;
  const KvLayer& cache;
  uint32_t head;

  float key(uint32_t token, uint32_t d) const {
    const uint32_t slot = token % kBlockTokens;
    return at(token, cache.key_index(slot, d), cache.key_scale_index(slot));
  }
  float value(uint32_t token, uint32_t d) const {
    const uint32_t slot = token % kBlockTokens;
    return at(token, cache.value_index(slot, d), cache.value_scale_index(slot));
  }

 private:
  float at(uint32_t token, size_t index, size_t scale_index) const {
    const std::byte* const block = cache.head(blocks[token / kBlockTokens], head);
    const float* const floats = reinterpret_cast<const float*>(block);
    switch (cache.type) {
      case KvType::kF32:
        return floats[index];
      case KvType::kBf16:
        return arithmetic::float_of_bf16(reinterpret_cast<const uint16_t*>(block)[index]);
      case KvType::kInt8:
        break;
    }
    const auto q = static_cast<float>(reinterpret_cast<const int8_t*>(block)[index]);
    return rounded(floats[scale_index] * q, cache.type);
  }
};

// The sum over k in [begin, end) of a(k) * b(k), in groups of 32 from the one that begin is in: the
// even ones make one chain and the odd ones another.
template <class A, class B>
float grouped_sum(uint32_t begin, uint32_t end, const A& a, const B& b) {
  constexpr uint32_t kGroup = arithmetic::kGroup;
  float sum = 0;
  for (uint32_t first = begin / kGroup * kGroup; first < end; first += kGroup) {
    float chain[2] = {0, 0};
    for (uint32_t k = std::max(first, begin); k < std::min(first + kGroup, end); ++k) {
      chain[k % 2] = fma(a(k), b(k), chain[k % 2]);
    }
    sum = sum + (chain[0] + chain[1]);
  }
  return sum;
}

// The same by tensor cores: groups of 16 from the one that begin is in, with zeros around.
template <class A, class B>
float tensor_sum(uint32_t begin, uint32_t end, const A& a, const B& b) {
  constexpr uint32_t kGroup = arithmetic::kF16Group;
  float sum = 0;
  for (uint32_t first = begin / kGroup * kGroup; first < end; first += kGroup) {
    uint16_t x[kGroup] = {}, y[kGroup] = {};
    for (uint32_t k = std::max(first, begin); k < std::min(first + kGroup, end); ++k) {
      x[k - first] = arithmetic::round_to_bf16(a(k));
      y[k - first] = arithmetic::round_to_bf16(b(k));
    }
    sum = arithmetic::add_bf16_products(sum, x, y);
  }
  return sum;
}

// Tokens [begin, end), which lie in one span.
Partial attend_span(const float* query, const Head& kv, const AttentionParams& params,
                    AttentionSums sums, uint32_t begin, uint32_t end) {
  const KvType type = kv.cache.type;
  const auto sum = [&](uint32_t from, uint32_t to, const auto& a, const auto& b) {
    return sums == AttentionSums::kTensorCores ? tensor_sum(from, to, a, b)
                                               : grouped_sum(from, to, a, b);
  };
  std::vector<float> p(end - begin);
  for (uint32_t t = begin; t < end; ++t) {
    const float score = sum(
        0, kv.cache.head_dim, [&](uint32_t d) { return rounded(query[d], type); },
        [&](uint32_t d) { return kv.key(t, d); });
    p[t - begin] = arithmetic::cap(score * params.scale, params.softcap);
  }
  Partial span;
  span.max = p[0];
  for (const float score : p) span.max = larger(span.max, score);
  arithmetic::Lanes lanes;
  for (uint32_t t = begin; t < end; ++t) {
    p[t - begin] = rounded(exp(p[t - begin] - span.max), type);
    float& lane = lanes.lane[t % arithmetic::kLanes];
    lane = lane + p[t - begin];
  }
  span.weight = lanes.sum();
  for (uint32_t d = 0; d < kv.cache.head_dim; ++d) {
    span.values.push_back(sum(
        begin, end, [&](uint32_t t) { return p[t - begin]; },
        [&](uint32_t t) { return kv.value(t, d); }));
  }
  return span;
}

void merge(Partial& total, Partial span) {
  if (total.values.empty()) {
    total = std::move(span);
    return;
  }
  const float max = larger(total.max, span.max);
  const float old_scale = exp(total.max - max), new_scale = exp(span.max - max);
  total.max = max;
  total.weight = fma(span.weight, new_scale, total.weight * old_scale);
  for (size_t d = 0; d < total.values.size(); ++d) {
    total.values[d] = fma(span.values[d], new_scale, total.values[d] * old_scale);
  }
}

void merge_sink(Partial& total, float sink) {
  const float max = larger(total.max, sink);
  const float scale = exp(total.max - max);
  total.weight = fma(total.weight, scale, exp(sink - max));
  for (float& value : total.values) value = value * scale;
}

}  // namespace

void attend(const Query& query, std::span<const BlockId> blocks, const KvLayer& cache,
            const AttentionParams& params, AttentionSums sums, float* out) {
  const Head kv{blocks, cache, query.head / (params.heads / cache.heads)};
  const uint32_t end = query.position + 1;
  const uint32_t begin = params.window == 0 || end <= params.window ? 0 : end - params.window;
  constexpr uint32_t kSpan = arithmetic::kSpanTokens;
  Partial total;
  for (uint32_t first = begin / kSpan * kSpan; first < end; first += kSpan) {
    merge(total, attend_span(query.values, kv, params, sums, std::max(first, begin),
                             std::min(first + kSpan, end)));
  }
  if (params.sinks) merge_sink(total, raw(params.sinks)[query.head]);
  const float inverse = 1.0F / total.weight;
  for (uint32_t d = 0; d < cache.head_dim; ++d) out[d] = total.values[d] * inverse;
}

}  // namespace skein::reference
