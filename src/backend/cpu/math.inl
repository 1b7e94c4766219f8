// The functions of arithmetic.h on 16 lanes, rounding for rounding the same.
#pragma once

#include "backend/arithmetic.h"

namespace skein::cpu {
namespace {

template <class V>
typename V::F exp16(typename V::F x) {
  using F = typename V::F;
  const F round = V::splat(arithmetic::kRound);
  const F shifted = V::fma(x, V::splat(arithmetic::kLog2E), round);
  const F n = V::sub(shifted, round);
  const F r =
      V::fma(n, V::splat(-arithmetic::kLn2Low), V::fma(n, V::splat(-arithmetic::kLn2High), x));
  F p = V::splat(arithmetic::kExpCoefficients[0]);
  for (size_t i = 1; i < 6; ++i) p = V::fma(p, r, V::splat(arithmetic::kExpCoefficients[i]));
  p = V::add(V::fma(p, V::mul(r, r), r), V::splat(1.0F));
  const F y = V::select(V::less_equal(x, V::splat(arithmetic::kExpHighest)),
                        V::add_exponent(p, shifted), V::mul(x, V::splat(arithmetic::kInfinity)));
  return V::select(V::less(x, V::splat(arithmetic::kExpLowest)), V::splat(0.0F), y);
}

template <class V>
typename V::F negate(typename V::F x) {
  return V::mul(x, V::splat(-1.0F));
}

template <class V>
typename V::F tanh16(typename V::F x) {
  using F = typename V::F;
  const F one = V::splat(1.0F), magnitude = V::bit_and(x, 0x7fffffffU), square = V::mul(x, x);
  F p = V::splat(arithmetic::kTanhCoefficients[0]);
  for (size_t i = 1; i < 5; ++i) p = V::fma(p, square, V::splat(arithmetic::kTanhCoefficients[i]));
  const F small = V::fma(V::mul(p, square), x, x);
  const F above = V::add(exp16<V>(V::add(magnitude, magnitude)), one);
  const F large = V::bit_or(V::sub(one, V::div(V::splat(2.0F), above)), V::bit_and(x, 0x80000000U));
  return V::select(V::less(magnitude, V::splat(arithmetic::kTanhSmall)), small, large);
}

// x / (1 + exp(-y))
template <class V>
typename V::F over_one_plus_exp(typename V::F x, typename V::F y) {
  return V::div(x, V::add(V::splat(1.0F), exp16<V>(negate<V>(y))));
}

template <class V>
typename V::F gelu_tanh16(typename V::F x) {
  using F = typename V::F;
  const F cube = V::fma(V::mul(V::splat(arithmetic::kGeluCube), x), x, V::splat(1.0F));
  return over_one_plus_exp<V>(x, V::mul(V::mul(V::splat(arithmetic::kGeluTwice), x), cube));
}

template <class V>
typename V::F gelu16(typename V::F x) {
  using F = typename V::F;
  const F one = V::splat(1.0F), magnitude = V::bit_and(x, 0x7fffffffU);
  const F t = V::div(one, V::fma(V::splat(arithmetic::kGeluShrink), magnitude, one));
  F p = V::splat(arithmetic::kGeluCoefficients[0]);
  for (size_t i = 1; i < 8; ++i) p = V::fma(p, t, V::splat(arithmetic::kGeluCoefficients[i]));
  const F tail = V::mul(V::mul(p, t), exp16<V>(V::mul(V::mul(x, V::splat(-0.5F)), x)));
  return V::mul(x, V::select(V::less(x, V::splat(0.0F)), tail, V::sub(one, tail)));
}

template <class V>
typename V::F cap16(typename V::F x, float softcap) {
  if (softcap == 0.0F) return x;
  return V::mul(V::splat(softcap), tanh16<V>(V::div(x, V::splat(softcap))));
}

// Loops over registers: gcc keeps their arrays out of memory if told to write them out.
#define SKEIN_WRITE_OUT _Pragma("GCC unroll 16")

template <size_t kValue>
struct Index {
  constexpr operator size_t() const { return kValue; }  // NOLINT: meant to be implicit
};

// fn(Index<0>()), ..., fn(Index<kCount - 1>()), written out: arrays indexed by them are registers.
template <size_t kCount, class Fn>
__attribute__((always_inline)) inline void repeat(Fn fn) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(fn);
    fn(Index<kCount - 1>());
  }
}

// fn(first, lanes) for the elements [first, first + lanes) of `count`: 16 at a time, then the rest.
template <class Fn>
void for_lanes(size_t count, Fn fn) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) fn(i, size_t{16});
  if (i < count) fn(i, count - i);
}

template <class V>
typename V::F load_lanes(const float* at, size_t lanes) {
  return lanes == 16 ? V::load(at) : V::load_first(at, lanes);
}

template <class V>
void store_lanes(float* at, typename V::F x, size_t lanes) {
  if (lanes == 16) {
    V::store(at, x);
  } else {
    V::store_first(at, x, lanes);
  }
}

}  // namespace
}  // namespace skein::cpu
