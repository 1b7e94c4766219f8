// Attention over one span (reference/attention.cpp says what it computes).
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// How a block's head is read (KvLayer in backend.h): always two neighbours at once. Where the
// second one is past the end it is somewhere else in the same head, and not used.
template <class V>
struct HeadF32 {
  using F = typename V::F;
  const float* at;
  size_t dim;

  HeadF32(const std::byte* head, size_t head_dim)
      : at(reinterpret_cast<const float*>(head)), dim(head_dim) {}
  // Dimensions d and d + 1 (d is even) of the first or second 16 tokens.
  void keys(size_t d, size_t half, F (&out)[2]) const {
    for (size_t i = 0; i < 2; ++i) out[i] = V::load(at + (d + i) * kKernelBlockTokens + 16 * half);
  }
  // Tokens 2 * pair and the next, `lanes` dimensions from d, a multiple of 16.
  void values(size_t pair, size_t d, size_t lanes, F (&out)[2]) const {
    for (size_t i = 0; i < 2; ++i) {
      out[i] = load_lanes<V>(at + (kKernelBlockTokens + 2 * pair + i) * dim + d, lanes);
    }
  }
};

template <class V>
struct HeadBf16 {
  using F = typename V::F;
  static constexpr size_t kPairs = 16;  // a float's place holds a pair
  const float* at;
  size_t dim;

  HeadBf16(const std::byte* head, size_t head_dim)
      : at(reinterpret_cast<const float*>(head)), dim((head_dim + 15) / 16 * 16) {}
  void keys(size_t d, size_t half, F (&out)[2]) const {
    split(at + (half * dim / 2 + d / 2) * kPairs, out);
  }
  void values(size_t pair, size_t d, size_t, F (&out)[2]) const {
    split(at + (dim + d / 16 * (kKernelBlockTokens / 2) + pair) * kPairs, out);
  }

 private:
  static void split(const float* pairs, F (&out)[2]) {
    const F both = V::load(pairs);
    out[0] = V::bits_up16(both);
    out[1] = V::bit_and(both, 0xffff0000U);
  }
};

// Scores of kQ queries with the tokens of one block, scaled and capped; invisible ones too, which
// nobody reads.
template <class V, class Head, size_t kQ>
void score_block(const AttendSpan& a, size_t query, size_t block) {
  using F = typename V::F;
  const Head head(a.blocks[block], a.head_dim);
  const float* const q = a.queries + query * a.head_dim;
  F low[kQ], high[kQ];
  for (size_t i = 0; i < kQ; ++i) low[i] = high[i] = V::splat(0.0F);
  const auto take = [&](size_t d, F k0, F k1) {
    for (size_t i = 0; i < kQ; ++i) {
      const F x = V::splat(q[i * a.head_dim + d]);
      low[i] = V::fma(x, k0, low[i]);
      high[i] = V::fma(x, k1, high[i]);
    }
  };
  for (size_t d = 0; d < a.head_dim; d += 2) {
    F k0[2], k1[2];
    head.keys(d, 0, k0);
    head.keys(d, 1, k1);
    take(d, k0[0], k1[0]);
    if (d + 1 < a.head_dim) take(d + 1, k0[1], k1[1]);
  }
  const F scale = V::splat(a.scale);
  for (size_t i = 0; i < kQ; ++i) {
    float* const out =
        a.scores + (query + i) * arithmetic::kSpanTokens + block * kKernelBlockTokens;
    V::store(out, cap16<V>(V::mul(low[i], scale), a.softcap));
    V::store(out + 16, cap16<V>(V::mul(high[i], scale), a.softcap));
  }
}

// Scores to weights, in place; leaves the maximum and the sum in the partial.
template <class V>
void weigh(const AttendSpan& a, size_t query) {
  using F = typename V::F;
  float* const scores = a.scores + query * arithmetic::kSpanTokens;
  const size_t first = a.begin / 16 * 16;
  const auto visible = [&](size_t t) {
    return V::between(a.begin > t ? a.begin - t : 0, a.end - t);
  };
  F max = V::splat(-arithmetic::kInfinity);
  for (size_t t = first; t < a.end; t += 16) {
    max = V::select(visible(t), V::max(max, V::load(scores + t)), max);
  }
  float lane[16];
  V::store(lane, max);
  for (size_t l = 1; l < 16; ++l) lane[0] = lane[0] > lane[l] ? lane[0] : lane[l];
  const F all = V::splat(lane[0]);
  F sum = V::splat(0.0F);
  for (size_t t = first; t < a.end; t += 16) {
    const F p = V::select(visible(t), exp16<V>(V::sub(V::load(scores + t), all)), V::splat(0.0F));
    V::store(scores + t, p);
    sum = V::add(sum, p);
  }
  float* const partial = a.partials + query * (a.head_dim + 2);
  partial[a.head_dim] = lane[0];
  partial[a.head_dim + 1] = V::sum(sum);
}

// The weighted sums of values for kQ queries, kD vectors of dimensions from d; the last one may
// have fewer lanes when kD is 1.
template <class V, class Head, size_t kQ, size_t kD>
void gather_values(const AttendSpan& a, size_t query, size_t d, size_t lanes) {
  using F = typename V::F;
  F sums[kQ][kD];
  for (auto& row : sums) {
    for (F& sum : row) sum = V::splat(0.0F);
  }
  const float* const weights = a.scores + query * arithmetic::kSpanTokens;
  F v[kD][2];
  const auto take = [&](size_t t, size_t which) {
    for (size_t i = 0; i < kQ; ++i) {
      const F p = V::splat(weights[i * arithmetic::kSpanTokens + t]);
      for (size_t j = 0; j < kD; ++j) sums[i][j] = V::fma(p, v[j][which], sums[i][j]);
    }
  };
  for (size_t t = a.begin / 2 * 2; t < a.end; t += 2) {
    const Head head(a.blocks[t / kKernelBlockTokens], a.head_dim);
    for (size_t j = 0; j < kD; ++j) {
      head.values(t % kKernelBlockTokens / 2, d + 16 * j, kD == 1 ? lanes : 16, v[j]);
    }
    if (t >= a.begin) take(t, 0);
    if (t + 1 < a.end) take(t + 1, 1);
  }
  for (size_t i = 0; i < kQ; ++i) {
    float* const out = a.partials + (query + i) * (a.head_dim + 2) + d;
    for (size_t j = 0; j < kD; ++j) store_lanes<V>(out + 16 * j, sums[i][j], lanes);
  }
}

template <class V, class Head, size_t kQ>
void attend_queries(const AttendSpan& a, size_t query) {
  for (size_t block = a.begin / kKernelBlockTokens; block * kKernelBlockTokens < a.end; ++block) {
    score_block<V, Head, kQ>(a, query, block);
  }
  for (size_t i = 0; i < kQ; ++i) weigh<V>(a, query + i);
  size_t d = 0;
  for (; d + 64 <= a.head_dim; d += 64) gather_values<V, Head, kQ, 4>(a, query, d, 16);
  for (; d < a.head_dim; d += 16) {
    gather_values<V, Head, kQ, 1>(a, query, d, a.head_dim - d < 16 ? a.head_dim - d : 16);
  }
}

template <class V, class Head>
void attend_span(const AttendSpan& a) {
  constexpr size_t kTile = V::kTileRows;
  size_t query = 0;
  for (; query + kTile <= a.count; query += kTile) attend_queries<V, Head, kTile>(a, query);
  if constexpr (kTile == 4) {
    switch (a.count - query) {
      case 3:
        return attend_queries<V, Head, 3>(a, query);
      case 2:
        return attend_queries<V, Head, 2>(a, query);
      case 1:
        return attend_queries<V, Head, 1>(a, query);
      default:
        return;
    }
  }
}

template <class V>
float exp_of(float x) {
  float lane[16];
  V::store(lane, exp16<V>(V::splat(x)));
  return lane[0];
}

template <class V>
void merge_partial(float* total, const float* span, size_t head_dim) {
  using F = typename V::F;
  float &total_max = total[head_dim], &weight = total[head_dim + 1];
  const float max = total_max > span[head_dim] ? total_max : span[head_dim];
  const float old_scale = exp_of<V>(total_max - max), new_scale = exp_of<V>(span[head_dim] - max);
  total_max = max;
  weight = __builtin_fmaf(span[head_dim + 1], new_scale, weight * old_scale);
  const F old_scales = V::splat(old_scale), new_scales = V::splat(new_scale);
  for_lanes(head_dim, [&](size_t d, size_t lanes) {
    const F old = V::mul(load_lanes<V>(total + d, lanes), old_scales);
    store_lanes<V>(total + d, V::fma(load_lanes<V>(span + d, lanes), new_scales, old), lanes);
  });
}

template <class V>
void finish_attention(const float* total, const float* sink, size_t head_dim, float* out) {
  using F = typename V::F;
  float weight = total[head_dim + 1], scale = 1.0F;
  if (sink != nullptr) {
    const float max = total[head_dim] > *sink ? total[head_dim] : *sink;
    scale = exp_of<V>(total[head_dim] - max);
    weight = __builtin_fmaf(weight, scale, exp_of<V>(*sink - max));
  }
  const F scales = V::splat(scale), inverse = V::splat(1.0F / weight);
  for_lanes(head_dim, [&](size_t d, size_t lanes) {
    F x = load_lanes<V>(total + d, lanes);
    if (sink != nullptr) x = V::mul(x, scales);
    store_lanes<V>(out + d, V::mul(x, inverse), lanes);
  });
}

}  // namespace
}  // namespace skein::cpu
