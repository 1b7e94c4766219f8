// Ops on single rows: norms, activations, rotation, sums.
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

template <class V>
float mean_of(const float* x, size_t width) {
  typename V::F sum = V::splat(0.0F);
  for_lanes(width, [&](size_t i, size_t lanes) { sum = V::add(sum, load_lanes<V>(x + i, lanes)); });
  return V::sum(sum) / static_cast<float>(width);
}

template <class V>
void norm(const NormRow& a) {
  using F = typename V::F;
  const bool layer = a.kind == RowNorm::kLayer;
  const F mean = V::splat(layer ? mean_of<V>(a.x, a.width) : 0.0F);
  // Lanes past the end stay zero.
  const auto centered = [&](size_t i, size_t lanes) {
    const F x = load_lanes<V>(a.x + i, lanes);
    if (!layer) return x;
    return V::select(V::between(0, lanes), V::sub(x, mean), V::splat(0.0F));
  };
  F squares = V::splat(0.0F);
  for_lanes(a.width, [&](size_t i, size_t lanes) {
    const F x = centered(i, lanes);
    squares = V::fma(x, x, squares);
  });
  const float variance = V::sum(squares) / static_cast<float>(a.width);
  const F scale = V::splat(1.0F / __builtin_sqrtf(variance + a.epsilon));
  for_lanes(a.width, [&](size_t i, size_t lanes) {
    F y = V::mul(centered(i, lanes), scale);
    if (a.weight != nullptr) y = V::mul(y, load_lanes<V>(a.weight + i, lanes));
    if (a.bias != nullptr) y = V::add(y, load_lanes<V>(a.bias + i, lanes));
    store_lanes<V>(a.out + i, y, lanes);
  });
}

template <class V>
typename V::F activated(const ActivateRow& a, typename V::F gate, typename V::F up) {
  using F = typename V::F;
  switch (a.kind) {
    case RowActivation::kSilu:
      return V::mul(over_one_plus_exp<V>(gate, gate), up);
    case RowActivation::kGeluTanh:
      return V::mul(gelu_tanh16<V>(gate), up);
    case RowActivation::kGeluTanhPlain:
      return gelu_tanh16<V>(gate);
    case RowActivation::kGelu:
      return gelu16<V>(gate);
    case RowActivation::kSwigluClamped: {
      const F limit = V::splat(a.limit), one = V::splat(1.0F);
      gate = V::min(limit, gate);
      up = V::max(V::splat(-a.limit), V::min(limit, up));
      const F sigmoid = over_one_plus_exp<V>(one, V::mul(V::splat(a.alpha), gate));
      return V::mul(V::mul(gate, sigmoid), V::add(up, one));
    }
  }
  return gate;
}

template <class V>
void activate(const ActivateRow& a) {
  for_lanes(a.width, [&](size_t i, size_t lanes) {
    const typename V::F gate = load_lanes<V>(a.gate + i, lanes);
    const typename V::F up = a.up == nullptr ? gate : load_lanes<V>(a.up + i, lanes);
    store_lanes<V>(a.out + i, activated<V>(a, gate, up), lanes);
  });
}

template <class V>
void scale(const float* x, float factor, size_t count, float* out) {
  for_lanes(count, [&](size_t i, size_t lanes) {
    store_lanes<V>(out + i, V::mul(V::splat(factor), load_lanes<V>(x + i, lanes)), lanes);
  });
}

template <class V>
void add_scaled(float* x, const float* delta, float factor, size_t count) {
  for_lanes(count, [&](size_t i, size_t lanes) {
    const typename V::F d = load_lanes<V>(delta + i, lanes);
    store_lanes<V>(x + i, V::fma(V::splat(factor), d, load_lanes<V>(x + i, lanes)), lanes);
  });
}

template <class V>
void rotate_halves(float* head, const float* cos, const float* sin, size_t half) {
  using F = typename V::F;
  for_lanes(half, [&](size_t i, size_t lanes) {
    const F a = load_lanes<V>(head + i, lanes), b = load_lanes<V>(head + half + i, lanes);
    const F c = load_lanes<V>(cos + i, lanes), s = load_lanes<V>(sin + i, lanes);
    store_lanes<V>(head + i, V::fma(a, c, negate<V>(V::mul(b, s))), lanes);
    store_lanes<V>(head + half + i, V::fma(b, c, V::mul(a, s)), lanes);
  });
}

template <class V>
void rotate_pairs(float* head, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
    head[2 * i + 1] = __builtin_fmaf(b, cos[i], a * sin[i]);
  }
}

template <class V>
void combine(const float* x, size_t stride, const float* weights, size_t used, size_t width,
             float* out) {
  for_lanes(width, [&](size_t i, size_t lanes) {
    typename V::F sum = V::splat(0.0F);
    for (size_t j = 0; j < used; ++j) {
      sum = V::fma(V::splat(weights[j]), load_lanes<V>(x + j * stride + i, lanes), sum);
    }
    store_lanes<V>(out + i, sum, lanes);
  });
}

template <class V>
void finish_logits(float* x, size_t count, float scale, float softcap) {
  for_lanes(count, [&](size_t i, size_t lanes) {
    const typename V::F scaled = V::mul(load_lanes<V>(x + i, lanes), V::splat(scale));
    store_lanes<V>(x + i, cap16<V>(scaled, softcap), lanes);
  });
}

}  // namespace
}  // namespace skein::cpu
