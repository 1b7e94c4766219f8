// 16 lanes in two registers of AVX2, FMA, F16C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace skein::cpu {
namespace {

struct VecAvx2 {
  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  using M = F;  // all bits of a lane

  static constexpr size_t kTileRows = 1;
  static constexpr size_t kChains = 4;

  static F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
  static F load_first(const float* at, size_t n) {
    const I mask = ints(between(0, n));
    return {_mm256_maskload_ps(at, mask.low), _mm256_maskload_ps(at + 8, mask.high)};
  }
  static void store(float* at, F x) {
    _mm256_storeu_ps(at, x.low);
    _mm256_storeu_ps(at + 8, x.high);
  }
  static void store_first(float* at, F x, size_t n) {
    const I mask = ints(between(0, n));
    _mm256_maskstore_ps(at, mask.low, x.low);
    _mm256_maskstore_ps(at + 8, mask.high, x.high);
  }

  static F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static F bit_and(F a, uint32_t bits) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(bits)));
    return {_mm256_and_ps(a.low, mask), _mm256_and_ps(a.high, mask)};
  }
  static F bits_up16(F a) {
    const I bits = shift_left(ints(a), 16);
    return {_mm256_castsi256_ps(bits.low), _mm256_castsi256_ps(bits.high)};
  }
  static F round_bf16(F x) {
    const auto round = [](__m256 part) {
      const __m256 flushed = _mm256_mul_ps(part, _mm256_set1_ps(1.0F));
      const __m256i bits = _mm256_castps_si256(flushed);
      const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(flushed, flushed, _CMP_ORD_Q));
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i up = _mm256_and_si256(_mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)), number);
      return _mm256_castsi256_ps(
          _mm256_and_si256(_mm256_add_epi32(bits, up), _mm256_set1_epi32(-0x10000)));
    };
    return {round(x.low), round(x.high)};
  }
  static F bf16_pairs(F even, F odd) {
    const auto round = [](__m256 x) {
      const __m256i bits = _mm256_castps_si256(x);
      const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
    };
    const auto pair = [&](__m256 first, __m256 second) {
      return _mm256_castsi256_ps(
          _mm256_blend_epi16(_mm256_srli_epi32(round(first), 16), round(second), 0xaa));
    };
    return {pair(even.low, odd.low), pair(even.high, odd.high)};
  }
  static F bit_or(F a, F b) { return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)}; }
  static F add_exponent(F p, F shifted) {
    const I n = shift_left(ints(shifted), 23), bits = ints(p);
    return {_mm256_castsi256_ps(_mm256_add_epi32(bits.low, n.low)),
            _mm256_castsi256_ps(_mm256_add_epi32(bits.high, n.high))};
  }

  static M less(F a, F b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
  }
  static M less_equal(F a, F b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ)};
  }
  static M equal(F a, F b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
  }
  static M between(size_t begin, size_t end) {
    const auto at_most_16 = [](size_t n) {
      return _mm256_set1_epi32(n > 16 ? 16 : static_cast<int>(n));
    };
    const __m256i b = at_most_16(begin), e = at_most_16(end);
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    const auto inside = [&](__m256i lane) {
      return _mm256_castsi256_ps(
          _mm256_andnot_si256(_mm256_cmpgt_epi32(b, lane), _mm256_cmpgt_epi32(e, lane)));
    };
    return {inside(low), inside(high)};
  }
  static M lanes(uint32_t bits) {
    const I all = where_bits(bits, -1);
    return {_mm256_castsi256_ps(all.low), _mm256_castsi256_ps(all.high)};
  }
  static F select(M mask, F yes, F no) {
    return {_mm256_blendv_ps(no.low, yes.low, mask.low),
            _mm256_blendv_ps(no.high, yes.high, mask.high)};
  }
  static uint32_t bits(M mask) {
    return static_cast<uint32_t>(_mm256_movemask_ps(mask.low)) |
           static_cast<uint32_t>(_mm256_movemask_ps(mask.high)) << 8;
  }

  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  // The same tree for four at once.
  static void sum4(const F x[4], float out[4]) {
    const __m256 a = halves(x[0], x[1]), b = halves(x[2], x[3]);
    const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));  // lanes 0, 2 of each half
    const __m128 low = _mm256_castps256_ps128(one), high = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_setr_ps(lane<0>(low), lane<0>(high), lane<2>(low), lane<2>(high)));
  }

  static float from_f16(const uint8_t* at) {
    uint16_t half;
    __builtin_memcpy(&half, at, 2);
    return _cvtsh_ss(half);
  }
  static F load_f16(const uint8_t* at) {
    const auto* halves = reinterpret_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static F load_bf16(const uint8_t* at) {
    const auto* halves = reinterpret_cast<const __m128i*>(at);
    const auto widen = [](__m128i x) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    };
    return {widen(_mm_loadu_si128(halves)), widen(_mm_loadu_si128(halves + 1))};
  }

  static I load_u8(const uint8_t* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static I load_i8(const uint8_t* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static I shift_right(I x, unsigned n) {
    const int by = static_cast<int>(n);
    return {_mm256_srli_epi32(x.low, by), _mm256_srli_epi32(x.high, by)};
  }
  static I shift_left(I x, unsigned n) {
    const int by = static_cast<int>(n);
    return {_mm256_slli_epi32(x.low, by), _mm256_slli_epi32(x.high, by)};
  }
  static I bit_and(I x, int32_t bits) {
    const __m256i mask = _mm256_set1_epi32(bits);
    return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
  }
  static I bit_or(I a, I b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
  }
  static I sub(I a, int32_t b) {
    const __m256i all = _mm256_set1_epi32(b);
    return {_mm256_sub_epi32(a.low, all), _mm256_sub_epi32(a.high, all)};
  }
  static I where_bits(uint32_t bits, int32_t value) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits)), v = _mm256_set1_epi32(value);
    const auto where = [&](__m256i bit) {
      return _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_and_si256(all, bit), bit), v);
    };
    return {where(_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128)),
            where(_mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768))};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
  static F lookup(F table, I index) {
    const auto look =
        [&](__m256i at) {  // bit 3 chooses the half, the permutation takes bits 0 to 2
          const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
          return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, at),
                                  _mm256_permutevar8x32_ps(table.high, at), upper);
        };
    return {look(index.low), look(index.high)};
  }

 private:
  static I ints(F x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
  // After lanes l + (l + 8): l + (l + 4) of a in the lower half, of b in the upper.
  static __m256 halves(F a, F b) {
    const __m256 x = _mm256_add_ps(a.low, a.high), y = _mm256_add_ps(b.low, b.high);
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  }
  template <int kLane>
  static float lane(__m128 x) {
    return _mm_cvtss_f32(_mm_permute_ps(x, kLane));
  }
};

}  // namespace
}  // namespace skein::cpu
