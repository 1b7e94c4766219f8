// Scans over a vocabulary (vocabulary_scan.h).
#pragma once

#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

template <class V>
float largest(const float* x, size_t count, bool* all_finite) {
  using F = typename V::F;
  const F infinity = V::splat(arithmetic::kInfinity);
  F max = V::splat(-arithmetic::kInfinity);
  bool finite = true;
  for_lanes(count, [&](size_t i, size_t lanes) {
    const F v = load_lanes<V>(x + i, lanes);
    const auto valid = V::between(0, lanes);
    max = V::select(valid, V::max(v, max), max);
    finite = finite && V::bits(V::less(v, infinity)) == 0xffff;  // NaN is less than nothing
  });
  *all_finite = finite;
  float lane[16];
  V::store(lane, max);
  for (size_t l = 1; l < 16; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

template <class V>
size_t find(const float* x, size_t count, float value) {
  const typename V::F wanted = V::splat(value);
  for (size_t i = 0; i < count; i += 16) {
    const size_t lanes = count - i < 16 ? count - i : 16;
    uint32_t hits = V::bits(V::equal(load_lanes<V>(x + i, lanes), wanted));
    hits &= (uint32_t{1} << lanes) - 1;
    if (hits != 0) return i + static_cast<size_t>(__builtin_ctz(hits));
  }
  return count;
}

template <class V>
float sum_exp(const float* x, size_t count, float max, float factor) {
  using F = typename V::F;
  const F m = V::splat(max), f = V::splat(factor);
  F sum = V::splat(0.0F);
  for_lanes(count, [&](size_t i, size_t lanes) {
    const F e = exp16<V>(V::mul(V::sub(load_lanes<V>(x + i, lanes), m), f));
    sum = V::add(sum, V::select(V::between(0, lanes), e, V::splat(0.0F)));
  });
  return V::sum(sum);
}

template <class V>
size_t collect(const float* x, size_t count, float threshold, int32_t* ids, float* values,
               size_t capacity) {
  const typename V::F least = V::splat(threshold);
  size_t found = 0;
  for_lanes(count, [&](size_t i, size_t lanes) {
    uint32_t hits = V::bits(V::less_equal(least, load_lanes<V>(x + i, lanes)));
    hits &= (uint32_t{1} << lanes) - 1;
    for (; hits != 0; hits &= hits - 1) {
      const size_t at = i + static_cast<size_t>(__builtin_ctz(hits));
      if (found < capacity) {
        ids[found] = static_cast<int32_t>(at);
        values[found] = x[at];
      }
      ++found;
    }
  });
  return found;
}

template <class V>
void exp_all(const float* x, size_t count, float* out) {
  for_lanes(count, [&](size_t i, size_t lanes) {
    store_lanes<V>(out + i, exp16<V>(load_lanes<V>(x + i, lanes)), lanes);
  });
}

}  // namespace
}  // namespace skein::cpu
