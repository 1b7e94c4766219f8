// dot_scalar.h says what this is. One register is the 64 bytes; needs VNNI.
#pragma once

#include "backend/arithmetic.h"
#include "backend/cpu/vec_avx512.h"

namespace skein::cpu {
namespace {

struct DotAvx512 : VecAvx512 {
  using W = I;

  // Loads of 64 bytes, broadcasts among them, are what limits this: four rows share those of
  // weights and three blocks those of activations, which with their sums fills the registers.
  static constexpr size_t kMaxRows = 4;
  static constexpr size_t kBlocks = 3;
  static constexpr size_t kBf16Blocks = 2;
  static constexpr size_t kBlocksOfOneRow = 4;
  static constexpr size_t kPanelRows = 12;

  static W load_bytes(const uint8_t* at) { return _mm512_loadu_si512(at); }
  static I load_bits(const uint8_t* at, int32_t shift, int32_t mask) {
    return VecAvx512::bit_and(_mm512_srl_epi32(load_bytes(at), _mm_cvtsi32_si128(shift)), mask);
  }
  static void store_bytes(uint8_t* at, W w) { _mm512_storeu_si512(at, w); }
  static W low_nibbles(W w) { return _mm512_and_si512(w, _mm512_set1_epi8(0xf)); }
  static W high_nibbles(W w) { return low_nibbles(_mm512_srli_epi16(w, 4)); }
  template <int kShift>
  static W bits(W w, uint8_t mask) {
    W shifted = w;
    if constexpr (kShift < 0) shifted = _mm512_slli_epi16(w, -kShift);
    if constexpr (kShift > 0) shifted = _mm512_srli_epi16(w, kShift);
    return _mm512_and_si512(shifted, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  static W either(W a, W b) { return _mm512_or_si512(a, b); }
  static W add_bytes(W w, uint8_t each) {
    return _mm512_add_epi8(w, _mm512_set1_epi8(static_cast<char>(each)));
  }
  static W load_table(const uint8_t* at) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static W lookup_bytes(W table, W index) { return _mm512_shuffle_epi8(table, index); }

  template <bool kSmall, bool kSigned>
  static I dot_start(const int32_t* start) {
    return _mm512_set1_epi32(kSigned ? *start : arithmetic::kDotBiasBits);
  }
  static I load_four(const int8_t* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
  }
  template <bool kSmall>
  static I dot_add(I sum, W w, I four) {
    return _mm512_dpbusd_epi32(sum, w, four);
  }
  template <bool kSmall, bool kSigned>
  static F dot_finish(I dot, const int32_t*) {
    return bits_to_float(dot);
  }
  static F bits_to_float(I bits) { return _mm512_castsi512_ps(bits); }

  static F even_halves(W w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }
  static F odd_halves(W w) {
    return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(-0x10000)));
  }

  static uint32_t largest_bits(F a, F b) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                         _mm512_and_si512(_mm512_castps_si512(b), mask)));
  }
  static void store_int8(F low, F high, int8_t* out, int32_t* sums) {
    const __m128i first = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low));
    const __m128i second = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high));
    const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
    // The instruction that adds up bytes knows no signs: 128 more each.
    const __m256i eights =
        _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m256i halves = _mm256_add_epi64(eights, _mm256_shuffle_epi32(eights, 0x4e));
    sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(halves)) - 16 * 128;
    sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1)) - 16 * 128;
  }
};

}  // namespace
}  // namespace skein::cpu
