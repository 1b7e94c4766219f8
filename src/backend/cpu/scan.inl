// Scans over a vocabulary (vocabulary_scan.h).
#pragma once

#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// fn(first, lanes, bits) for 16 elements at a time of which `mask` has any, the rest of `count`
// last: `bits` are theirs. No mask: all of them.
template <class Fn>
void for_allowed(size_t count, const uint64_t* mask, Fn fn) {
  if (mask == nullptr) {
    for_lanes(count, [&](size_t i, size_t lanes) { fn(i, lanes, (uint32_t{1} << lanes) - 1); });
    return;
  }
  for (size_t word = 0; word * 64 < count; ++word) {
    size_t i = word * 64;
    for (uint64_t rest = mask[word]; rest != 0; rest >>= 16, i += 16) {
      const uint32_t bits = rest & 0xffff;
      if (bits != 0) fn(i, count - i < 16 ? count - i : 16, bits);
    }
  }
}

template <class V>
float largest(const float* x, size_t count, const uint64_t* mask, bool* all_finite) {
  using F = typename V::F;
  const F infinity = V::splat(arithmetic::kInfinity);
  F max = V::splat(-arithmetic::kInfinity);
  bool finite = true;
  for_allowed(count, mask, [&](size_t i, size_t lanes, uint32_t bits) {
    const F v = load_lanes<V>(x + i, lanes);
    max = V::select(V::lanes(bits), V::max(v, max), max);
    finite = finite && (~V::bits(V::less(v, infinity)) & bits) == 0;  // NaN is less than nothing
  });
  *all_finite = finite;
  float lane[16];
  V::store(lane, max);
  for (size_t l = 1; l < 16; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

template <class V>
size_t find(const float* x, size_t count, const uint64_t* mask, float value) {
  const typename V::F wanted = V::splat(value);
  for (size_t i = 0; i < count; i += 16) {
    const size_t lanes = count - i < 16 ? count - i : 16;
    uint32_t hits = (uint32_t{1} << lanes) - 1;
    if (mask != nullptr) hits &= static_cast<uint32_t>(mask[i / 64] >> (i % 64));
    if (hits == 0) continue;
    hits &= V::bits(V::equal(load_lanes<V>(x + i, lanes), wanted));
    if (hits != 0) return i + static_cast<size_t>(__builtin_ctz(hits));
  }
  return count;
}

template <class V>
float sum_exp(const float* x, size_t count, const uint64_t* mask, float max, float factor) {
  using F = typename V::F;
  const F m = V::splat(max), f = V::splat(factor);
  F sum = V::splat(0.0F);
  for_allowed(count, mask, [&](size_t i, size_t lanes, uint32_t bits) {
    const F e = exp16<V>(V::mul(V::sub(load_lanes<V>(x + i, lanes), m), f));
    sum = V::add(sum, V::select(V::lanes(bits), e, V::splat(0.0F)));
  });
  return V::sum(sum);
}

template <class V>
size_t collect(const float* x, size_t count, const uint64_t* mask, float threshold, int32_t* ids,
               float* values, size_t capacity) {
  const typename V::F least = V::splat(threshold);
  size_t found = 0;
  for_allowed(count, mask, [&](size_t i, size_t lanes, uint32_t bits) {
    uint32_t hits = V::bits(V::less_equal(least, load_lanes<V>(x + i, lanes))) & bits;
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
