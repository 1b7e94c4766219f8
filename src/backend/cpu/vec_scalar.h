// 16 lanes, one at a time: for any machine.
//
// A Vec has floats F, 32-bit integers I and lane masks M, and tells the kernels how large a tile of
// a product its registers hold: kTileRows rows of activations, kChains of attention.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::cpu {
namespace {

struct VecScalar {
  struct F {
    float lane[16];
  };
  struct I {
    int32_t lane[16];
  };
  using M = uint32_t;  // bit l: lane l

  static constexpr size_t kTileRows = 1;
  static constexpr size_t kChains = 4;

  template <class Fn>
  static F each(Fn fn) {
    F r;
    for (size_t l = 0; l < 16; ++l) r.lane[l] = fn(l);
    return r;
  }
  template <class Fn>
  static I each_int(Fn fn) {
    I r;
    for (size_t l = 0; l < 16; ++l) r.lane[l] = fn(l);
    return r;
  }
  template <class Fn>
  static M each_bit(Fn fn) {
    M r = 0;
    for (size_t l = 0; l < 16; ++l) r |= static_cast<M>(fn(l)) << l;
    return r;
  }

  static F splat(float x) {
    return each([&](size_t) { return x; });
  }
  static F load(const float* at) {
    return each([&](size_t l) { return at[l]; });
  }
  // The first n lanes; zeros in the others.
  static F load_first(const float* at, size_t n) {
    return each([&](size_t l) { return l < n ? at[l] : 0.0F; });
  }
  static void store(float* at, F x) {
    for (size_t l = 0; l < 16; ++l) at[l] = x.lane[l];
  }
  static void store_first(float* at, F x, size_t n) {
    for (size_t l = 0; l < n; ++l) at[l] = x.lane[l];
  }

  static F add(F a, F b) {
    return each([&](size_t l) { return a.lane[l] + b.lane[l]; });
  }
  static F sub(F a, F b) {
    return each([&](size_t l) { return a.lane[l] - b.lane[l]; });
  }
  static F mul(F a, F b) {
    return each([&](size_t l) { return a.lane[l] * b.lane[l]; });
  }
  static F div(F a, F b) {
    return each([&](size_t l) { return a.lane[l] / b.lane[l]; });
  }
  static F fma(F a, F b, F c) {
    return each([&](size_t l) { return __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]); });
  }
  // The second where one is NaN.
  static F max(F a, F b) {
    return each([&](size_t l) { return a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]; });
  }
  static F min(F a, F b) {
    return each([&](size_t l) { return a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]; });
  }
  static F bit_and(F a, uint32_t bits) {
    return each([&](size_t l) {
      return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a.lane[l]) & bits);
    });
  }
  // The bits of each lane, shifted up by 16.
  static F bits_up16(F a) {
    return each([&](size_t l) {
      return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a.lane[l]) << 16);
    });
  }
  // As arithmetic::round_to_bf16, still as floats.
  static F round_bf16(F x) {
    return each([&](size_t l) {
      const float flushed = x.lane[l] * 1.0F;
      const uint32_t bits = __builtin_bit_cast(uint32_t, flushed);
      const uint32_t up = flushed == flushed ? 0x7fff + (bits >> 16 & 1) : 0;
      return __builtin_bit_cast(float, (bits + up) & 0xffff0000U);
    });
  }
  // Both rounded in the same way, the first in the lower half of a lane. Not for subnormals, and a
  // NaN must have a lower half of zeros.
  static F bf16_pairs(F even, F odd) {
    const auto round = [](float x) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, x);
      return bits + 0x7fff + (bits >> 16 & 1);
    };
    return each([&](size_t l) {
      return __builtin_bit_cast(float,
                                round(even.lane[l]) >> 16 | (round(odd.lane[l]) & 0xffff0000U));
    });
  }
  static F bit_or(F a, F b) {
    return each([&](size_t l) {
      return __builtin_bit_cast(
          float, __builtin_bit_cast(uint32_t, a.lane[l]) | __builtin_bit_cast(uint32_t, b.lane[l]));
    });
  }
  // p * 2^n, where n stands in the low bits of `shifted`.
  static F add_exponent(F p, F shifted) {
    return each([&](size_t l) {
      return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p.lane[l]) +
                                           (__builtin_bit_cast(uint32_t, shifted.lane[l]) << 23));
    });
  }

  static M less(F a, F b) {
    return each_bit([&](size_t l) { return a.lane[l] < b.lane[l]; });
  }
  static M less_equal(F a, F b) {
    return each_bit([&](size_t l) { return a.lane[l] <= b.lane[l]; });
  }
  static M equal(F a, F b) {
    return each_bit([&](size_t l) { return a.lane[l] == b.lane[l]; });
  }
  // Lanes [begin, end).
  static M between(size_t begin, size_t end) {
    return each_bit([&](size_t l) { return l >= begin && l < end; });
  }
  // Those whose bit is set.
  static M lanes(uint32_t bits) { return bits; }
  static F select(M mask, F yes, F no) {
    return each([&](size_t l) { return (mask >> l & 1) != 0 ? yes.lane[l] : no.lane[l]; });
  }
  static uint32_t bits(M mask) { return mask; }

  static float sum(F x) {
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) x.lane[l] = x.lane[l] + x.lane[l + half];
    }
    return x.lane[0];
  }
  // The largest lane; all of them must be numbers.
  static float largest(F x) {
    float most = x.lane[0];
    for (const float lane : x.lane) most = most > lane ? most : lane;
    return most;
  }
  static void sum4(const F x[4], float out[4]) {
    for (size_t i = 0; i < 4; ++i) out[i] = sum(x[i]);
  }

  static float from_f16(const uint8_t* at) {
    uint16_t half;
    __builtin_memcpy(&half, at, 2);
    const uint32_t sign = (half & 0x8000U) << 16, exponent = half >> 10 & 0x1f;
    const uint32_t fraction = half & 0x3ff;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
    }
    const uint32_t rebiased = exponent == 0x1f ? 0xff : exponent + 112;
    return __builtin_bit_cast(float, sign | rebiased << 23 | fraction << 13);
  }
  static F load_f16(const uint8_t* at) {
    return each([&](size_t l) { return from_f16(at + 2 * l); });
  }
  static F load_bf16(const uint8_t* at) {
    return each([&](size_t l) {
      return __builtin_bit_cast(float, static_cast<uint32_t>(at[2 * l] << 16) |
                                           static_cast<uint32_t>(at[2 * l + 1]) << 24);
    });
  }

  static I load_u8(const uint8_t* at) {
    return each_int([&](size_t l) { return int32_t{at[l]}; });
  }
  static I load_i8(const uint8_t* at) {
    return each_int([&](size_t l) { return int32_t{static_cast<int8_t>(at[l])}; });
  }
  static I shift_right(I x, unsigned n) {
    return each_int([&](size_t l) { return x.lane[l] >> n; });
  }
  static I shift_left(I x, unsigned n) {
    return each_int([&](size_t l) { return x.lane[l] << n; });
  }
  static I bit_and(I x, int32_t bits) {
    return each_int([&](size_t l) { return x.lane[l] & bits; });
  }
  static I bit_or(I a, I b) {
    return each_int([&](size_t l) { return a.lane[l] | b.lane[l]; });
  }
  static I sub(I a, int32_t b) {
    return each_int([&](size_t l) { return a.lane[l] - b; });
  }
  // `value` in the lanes whose bit is set, 0 in the others.
  static I where_bits(uint32_t bits, int32_t value) {
    return each_int([&](size_t l) { return (bits >> l & 1) != 0 ? value : 0; });
  }
  static F to_float(I x) {
    return each([&](size_t l) { return static_cast<float>(x.lane[l]); });
  }
  // table[the low four bits of each lane]
  static F lookup(F table, I index) {
    return each([&](size_t l) { return table.lane[index.lane[l] & 15]; });
  }
};

}  // namespace
}  // namespace skein::cpu
