// linear_kernels.inl needs this beyond a Vec: dots of bytes, rounding, and sizes of tiles.
//
// Bytes W are 64: four codes of each of 16 outputs. A dot of codes with the activations of a record
// goes start, add for each four columns, finish, and ends as 16 floats, kDotBias plus the exact
// dot; kSmall: codes have four bits; kSigned: they stand for code - 8 or, unless kSmall, code -
// 128. `start` is that of the record for signed codes (linear_kernels.h).
#pragma once

#include "backend/arithmetic.h"
#include "backend/cpu/vec_scalar.h"

namespace skein::cpu {
namespace {

struct DotScalar : VecScalar {
  struct W {
    uint8_t byte[64];
  };

  // Registers hold so many at once: rows, and row blocks beside several rows or one.
  static constexpr size_t kMaxRows = 1;
  static constexpr size_t kBlocks = 1;
  static constexpr size_t kBf16Blocks = 1;
  static constexpr size_t kBlocksOfOneRow = 1;
  // From how many rows on panels pay; 0: never.
  static constexpr size_t kPanelRows = 0;

  static W load_bytes(const uint8_t* at) {
    W w;
    for (size_t i = 0; i < 64; ++i) w.byte[i] = at[i];
    return w;
  }
  // Bits of the four bytes of each output, which are a number whose last byte comes first.
  static I load_bits(const uint8_t* at, int32_t shift, int32_t mask) {
    return each_int([&](size_t l) {
      uint32_t word = 0;
      for (size_t c = 0; c < 4; ++c) word |= static_cast<uint32_t>(at[4 * l + c]) << (8 * c);
      return static_cast<int32_t>(word >> shift) & mask;
    });
  }
  static W low_nibbles(W w) {
    for (uint8_t& byte : w.byte) byte &= 0xf;
    return w;
  }
  static W high_nibbles(W w) {
    for (uint8_t& byte : w.byte) byte = static_cast<uint8_t>(byte >> 4);
    return w;
  }
  // Shifts each byte right by kShift, or left where kShift is negative, and keeps the bits of
  // `mask`. The mask must drop every bit that came from a neighbouring byte.
  template <int kShift>
  static W bits(W w, uint8_t mask) {
    for (uint8_t& byte : w.byte) {
      byte = static_cast<uint8_t>((kShift < 0 ? byte << -kShift : byte >> kShift) & mask);
    }
    return w;
  }
  static W either(W a, W b) {
    for (size_t i = 0; i < 64; ++i) a.byte[i] |= b.byte[i];
    return a;
  }
  static W add_bytes(W w, uint8_t each) {
    for (uint8_t& byte : w.byte) byte = static_cast<uint8_t>(byte + each);
    return w;
  }
  static W load_table(const uint8_t* at) {
    W w;
    for (size_t i = 0; i < 64; ++i) w.byte[i] = at[i % 16];
    return w;
  }
  static W lookup_bytes(W table, W index) {
    for (uint8_t& byte : index.byte) byte = table.byte[byte];
    return index;
  }

  template <bool kSmall, bool kSigned>
  static I dot_start(const int32_t* start) {
    return each_int([&](size_t) { return kSigned ? *start : arithmetic::kDotBiasBits; });
  }
  // Four activations for all outputs.
  static I load_four(const int8_t* x) {
    return each_int([&](size_t l) { return int32_t{x[l % 4]}; });
  }
  template <bool kSmall>
  static I dot_add(I sum, W w, I four) {
    return each_int([&](size_t l) {
      int32_t dot = sum.lane[l];
      for (size_t c = 0; c < 4; ++c) dot += w.byte[4 * l + c] * four.lane[c];
      return dot;
    });
  }
  template <bool kSmall, bool kSigned>
  static F dot_finish(I dot, const int32_t*) {
    return each([&](size_t l) { return __builtin_bit_cast(float, dot.lane[l]); });
  }

  // Pairs of bfloat16: the first of each, the second of each.
  static F even_halves(W w) {
    return each([&](size_t l) { return half(w, 4 * l); });
  }
  static F odd_halves(W w) {
    return each([&](size_t l) { return half(w, 4 * l + 2); });
  }

  // The largest bits of a magnitude among both.
  static uint32_t largest_bits(F a, F b) {
    uint32_t largest = 0;
    for (size_t l = 0; l < 32; ++l) {
      const float lane = l < 16 ? a.lane[l] : b.lane[l - 16];
      const uint32_t bits = __builtin_bit_cast(uint32_t, lane) & 0x7fffffffU;
      largest = largest > bits ? largest : bits;
    }
    return largest;
  }
  // Rounds to 32 int8, even among equals; the sums of the first and of the second 16.
  static void store_int8(F low, F high, int8_t* out, int32_t* sums) {
    sums[0] = store_half(low, out);
    sums[1] = store_half(high, out + 16);
  }

 private:
  static int32_t store_half(F x, int8_t* out) {
    int32_t sum = 0;
    for (size_t l = 0; l < 16; ++l) {
      out[l] = static_cast<int8_t>((x.lane[l] + 0x1.8p23F) - 0x1.8p23F);
      sum += out[l];
    }
    return sum;
  }

  static float half(const W& w, size_t at) {
    const uint32_t bits =
        static_cast<uint32_t>(w.byte[at]) << 16 | static_cast<uint32_t>(w.byte[at + 1]) << 24;
    return __builtin_bit_cast(float, bits);
  }
};

}  // namespace
}  // namespace skein::cpu
