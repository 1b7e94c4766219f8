// dot_scalar.h says what this is. Two registers are the 64 bytes; outputs 0 to 7 are in the low
// one.
#pragma once

#include "backend/arithmetic.h"
#include "backend/cpu/vec_avx2.h"

namespace skein::cpu {
namespace {

struct DotAvx2 : VecAvx2 {
  using W = I;

  static constexpr size_t kMaxRows = 2;
  static constexpr size_t kBlocks = 1;
  static constexpr size_t kBf16Blocks = 1;
  static constexpr size_t kBlocksOfOneRow = 1;
  static constexpr size_t kPanelRows = 0;

  static W load_bytes(const uint8_t* at) {
    const auto* registers = reinterpret_cast<const __m256i*>(at);
    return {_mm256_loadu_si256(registers), _mm256_loadu_si256(registers + 1)};
  }
  static I load_bits(const uint8_t* at, int32_t shift, int32_t mask) {
    const W w = load_bytes(at);
    const __m128i count = _mm_cvtsi32_si128(shift);
    return VecAvx2::bit_and(I{_mm256_srl_epi32(w.low, count), _mm256_srl_epi32(w.high, count)},
                            mask);
  }
  static W low_nibbles(W w) {
    const __m256i mask = _mm256_set1_epi8(0xf);
    return {_mm256_and_si256(w.low, mask), _mm256_and_si256(w.high, mask)};
  }
  static W high_nibbles(W w) {
    return low_nibbles({_mm256_srli_epi16(w.low, 4), _mm256_srli_epi16(w.high, 4)});
  }
  template <int kShift>
  static W bits(W w, uint8_t mask) {
    const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(shift<kShift>(w.low), kept),
            _mm256_and_si256(shift<kShift>(w.high), kept)};
  }
  static W either(W a, W b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
  }
  static W add_bytes(W w, uint8_t each) {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(each));
    return {_mm256_add_epi8(w.low, all), _mm256_add_epi8(w.high, all)};
  }
  static W load_table(const uint8_t* at) {
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return {table, table};
  }
  static W lookup_bytes(W table, W index) {
    return {_mm256_shuffle_epi8(table.low, index.low), _mm256_shuffle_epi8(table.high, index.high)};
  }

  // Sums of small codes stay in 16 bits until the end: 8 times 2 * 15 * 127 is below 2^15. Others
  // are multiplied as the signed numbers code - 128.
  template <bool kSmall, bool kSigned>
  static I dot_start(const int32_t* start) {
    if constexpr (kSmall) return {_mm256_setzero_si256(), _mm256_setzero_si256()};
    constexpr int32_t kBias = arithmetic::kDotBiasBits;
    const __m256i all = _mm256_set1_epi32(kSigned ? kBias : kBias + (kBias - *start));
    return {all, all};
  }
  static I load_four(const int8_t* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
  }
  template <bool kSmall>
  static I dot_add(I sum, W w, I four) {
    if constexpr (kSmall) {
      return {_mm256_add_epi16(sum.low, _mm256_maddubs_epi16(w.low, four.low)),
              _mm256_add_epi16(sum.high, _mm256_maddubs_epi16(w.high, four.high))};
    } else {
      return {_mm256_add_epi32(sum.low, signed_dot(w.low, four.low)),
              _mm256_add_epi32(sum.high, signed_dot(w.high, four.high))};
    }
  }
  template <bool kSmall, bool kSigned>
  static F dot_finish(I dot, const int32_t* start) {
    if constexpr (kSmall) {
      const __m256i ones = _mm256_set1_epi16(1);
      const __m256i bias = _mm256_set1_epi32(kSigned ? *start : arithmetic::kDotBiasBits);
      dot = {_mm256_add_epi32(_mm256_madd_epi16(dot.low, ones), bias),
             _mm256_add_epi32(_mm256_madd_epi16(dot.high, ones), bias)};
    }
    return {_mm256_castsi256_ps(dot.low), _mm256_castsi256_ps(dot.high)};
  }

  static F even_halves(W w) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(w.low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(w.high, 16))};
  }
  static F odd_halves(W w) {
    const I odd = bit_and(w, static_cast<int32_t>(0xffff0000U));
    return {_mm256_castsi256_ps(odd.low), _mm256_castsi256_ps(odd.high)};
  }

  static uint32_t largest_bits(F a, F b) {
    const auto magnitudes = [](F x) {
      const F bits = VecAvx2::bit_and(x, 0x7fffffffU);
      return _mm256_max_epu32(_mm256_castps_si256(bits.low), _mm256_castps_si256(bits.high));
    };
    const __m256i eight = _mm256_max_epu32(magnitudes(a), magnitudes(b));
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x0e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x01));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(x));
  }
  static void store_int8(F low, F high, int8_t* out, int32_t* sums) {
    sums[0] = store_half(low, out);
    sums[1] = store_half(high, out + 16);
  }

 private:
  static int32_t store_half(F x, int8_t* out) {
    const __m256i low = _mm256_cvtps_epi32(x.low), high = _mm256_cvtps_epi32(x.high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    const __m256i eight = _mm256_add_epi32(low, high);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x0e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x01));
    return _mm_cvtsi128_si32(sum);
  }

  template <int kShift>
  static __m256i shift(__m256i w) {
    if constexpr (kShift < 0) return _mm256_slli_epi16(w, -kShift);
    return _mm256_srli_epi16(w, kShift < 0 ? 0 : kShift);
  }

  // Four products each with code - 128. The sign goes over to the activations; a magnitude is 128
  // at most, so two products of 128 * 127 fit 16 bits.
  static __m256i signed_dot(__m256i codes, __m256i x) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

}  // namespace
}  // namespace skein::cpu
