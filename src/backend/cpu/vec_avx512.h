// 16 lanes in one register of AVX-512 F, BW, VL, DQ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace skein::cpu {
namespace {

struct VecAvx512 {
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static constexpr size_t kTileRows = 4;
  static constexpr size_t kChains = 24;

  static M first(size_t n) { return static_cast<M>((uint32_t{1} << n) - 1); }

  static F splat(float x) { return _mm512_set1_ps(x); }
  static F load(const float* at) { return _mm512_loadu_ps(at); }
  static F load_first(const float* at, size_t n) { return _mm512_maskz_loadu_ps(first(n), at); }
  static void store(float* at, F x) { _mm512_storeu_ps(at, x); }
  static void store_first(float* at, F x, size_t n) { _mm512_mask_storeu_ps(at, first(n), x); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F bit_and(F a, uint32_t bits) {
    return _mm512_and_ps(a, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits))));
  }
  static F bits_up16(F a) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 16));
  }
  static F round_bf16(F x) {
    const F flushed = _mm512_mul_ps(x, _mm512_set1_ps(1.0F));
    const __m512i bits = _mm512_castps_si512(flushed);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_maskz_add_epi32(_mm512_cmp_ps_mask(flushed, flushed, _CMP_ORD_Q), odd,
                                              _mm512_set1_epi32(0x7fff));
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_add_epi32(bits, up), _mm512_set1_epi32(-0x10000)));
  }
  static F bf16_pairs(F even, F odd) {
    const auto round = [](F x) {
      const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
      const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
      const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
      return _mm512_mask_add_epi32(up, is_odd, up, one);
    };
    return _mm512_castsi512_ps(
        _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(round(even), 16), round(odd)));
  }
  static F bit_or(F a, F b) { return _mm512_or_ps(a, b); }
  static F add_exponent(F p, F shifted) {
    return _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
  }

  static M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M less_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static M equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static M between(size_t begin, size_t end) {
    return static_cast<M>(first(end > 16 ? 16 : end) & ~first(begin > 16 ? 16 : begin));
  }
  static M lanes(uint32_t bits) { return static_cast<M>(bits); }
  static F select(M mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no, yes); }
  static uint32_t bits(M mask) { return mask; }

  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F x) { return _mm512_reduce_max_ps(x); }
  // The same tree for four at once.
  static void sum4(const F x[4], float out[4]) {
    const F a = halves(x[0], x[1]), b = halves(x[2], x[3]);
    const F four =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    const F two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x0e));
    const F one = _mm512_add_ps(two, _mm512_permute_ps(two, 0x01));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one)));
  }

  static float from_f16(const uint8_t* at) {
    uint16_t half;
    __builtin_memcpy(&half, at, 2);
    return _cvtsh_ss(half);
  }
  static F load_f16(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static F load_bf16(const uint8_t* at) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  static I load_u8(const uint8_t* at) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static I load_i8(const uint8_t* at) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static I shift_right(I x, unsigned n) { return _mm512_srli_epi32(x, n); }
  static I shift_left(I x, unsigned n) { return _mm512_slli_epi32(x, n); }
  static I bit_and(I x, int32_t bits) { return _mm512_and_si512(x, _mm512_set1_epi32(bits)); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I sub(I a, int32_t b) { return _mm512_sub_epi32(a, _mm512_set1_epi32(b)); }
  static I where_bits(uint32_t bits, int32_t value) {
    return _mm512_maskz_set1_epi32(static_cast<M>(bits), value);
  }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static F lookup(F table, I index) { return _mm512_permutexvar_ps(index, table); }

 private:
  // Lanes l + (l + 8) of a in the lower half, of b in the upper.
  static F halves(F a, F b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
};

}  // namespace
}  // namespace skein::cpu
