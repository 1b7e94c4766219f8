// The one arithmetic: what every op of every backend computes, rounding by rounding.
//
// Sums. A sum has 16 lanes: element k goes to lane k mod 16, each lane takes its elements in order,
// starting from +0, and a row ends with zeros up to a multiple of 16. The lanes are added as a
// tree: l + (l + 8), then + 4, + 2, + 1. Products go into a sum by fma. Where a sum is a "chain" it
// has one lane. Nothing else may be reordered or contracted: the numeric files are compiled with
// -ffp-contract=off.
//
// Products with weights have one of four definitions, chosen by precision, element type and profile
// (precision.h) when a matrix is made, never by what it is multiplied with (product_type_of in
// weight_parts.h). The bias is added last in all of them, but for G32's outliers and BF16's
// residuals.
//   F32   The exact weights in float32 and the activations as they are: a sum as above.
//   G32   The integers of a quantized file, as weight_groups.h reads them, and activations as
//         integers of 8 bits with a scale per 32 (quantize_group). For each 32 columns, in order,
//         and where a format has scales for 16 columns for each 16 of them: the exact integer dot
//         of both, then
//           acc = fma(dot * weight scale, activation scale, acc)       (product_of_dot)
//           acc = fma(weight minimum, activation scale * float(sum of activations), acc)
//         the second only for formats with a minimum. acc starts at +0. A few activations can be
//         so much larger than the others of their row that the integers of their group have no
//         room for the rest of it: where a group has one (is_outlier), its largest, the first
//         among equals, is 0 for the above, and after the bias, in the order of columns,
//           acc = fma(activation, weight, acc)
//         with weight = float(value) * scale, or fma(float(value), scale, minimum).
//   BF16  Weights and activations rounded to bfloat16 (round_to_bf16). For each 32 columns, in
//         order, the even ones make one chain and the odd ones another, each by fma from +0;
//           acc = acc + (even + odd)
//         A row ends with zeros up to a multiple of 32. This is what TDPBF16PS computes. A few
//         activations can be so much larger than the others of their row that what rounding leaves
//         of them matters: where a group has one (has_residual), the residuals x - rounded x of the
//         group, rounded too, make a second sum of the same kind, which is added after the bias.
//   F16   Weights and activations rounded to float16 with a power of two for each row, added up as
//         a tensor core does (f16_products.h): in the profile of a device alone.
//
// Attention has such sums too: a score over the dimensions in groups of 32, the weighted values
// over the tokens of each block of 32. Where the cache holds bfloat16, queries and weights are
// rounded to it as well (and the sum of the weights is that of the rounded ones), so that tiles can
// do it. A cache of int8 keeps the key or value of one token and head as integers of 8 bits with
// one scale (int8_scale over the head's dimensions); what it holds are the bfloat16 numbers
// round_to_bf16(scale * float(q)), and all else is as with a cache of bfloat16. In the profile of a
// device its tensor cores have the sums of both (f16_products.h), but in float32.
//
// Subnormals. Every op runs with FTZ and DAZ set (flush_denormals.h); the functions below reach the
// same bits either way unless an argument is subnormal.
//
// NaN. A NaN gives NaN; its sign and payload are the machine's choice and not part of the result.
//
// Only constants of this file may be used where a translation unit is compiled for one ISA: an
// inline function could leave a copy behind that the linker hands to an older CPU.
#pragma once

#include <cstddef>
#include <cstdint>

// The CUDA backend compiles this file for its device: there is one definition, not two.
#if defined(__CUDACC__)
#define SKEIN_DEVICE __device__
#else
#define SKEIN_DEVICE
#endif

namespace skein::arithmetic {

inline constexpr size_t kLanes = 16;
// Attention reduces a context in spans of this many tokens from position 0, each alone.
inline constexpr size_t kSpanTokens = 256;

constexpr float kInfinity = __builtin_inff();

// exp: x = n * ln2 + r with |r| <= ln2 / 2, a polynomial in r (Cephes' coefficients), n into the
// exponent. Adding kRound rounds to an integer and leaves it in the low bits.
constexpr float kLog2E = 1.44269504088896341F;
constexpr float kRound = 0x1.8p23F;
constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
constexpr float kLn2Low = -2.12194440e-4F;
SKEIN_DEVICE constexpr float kExpCoefficients[] = {1.9875691500e-4F, 1.3981999507e-3F,
                                                   8.3334519073e-3F, 4.1665795894e-2F,
                                                   1.6666665459e-1F, 5.0000001201e-1F};
constexpr float kExpLowest = -87.33F;  // below it the result would be next to subnormal: 0
constexpr float kExpHighest = 88.72283F;

// tanh: an odd polynomial (Cephes' coefficients) below kTanhSmall, 1 - 2 / (exp(2x) + 1) above.
constexpr float kTanhSmall = 0.625F;
SKEIN_DEVICE constexpr float kTanhCoefficients[] = {-5.70498872745e-3F, 2.06390887954e-2F,
                                                    -5.37397155531e-2F, 1.33314422036e-1F,
                                                    -3.33332819422e-1F};

// gelu, tanh form: x * sigmoid(2u), which is x / 2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + c * x^3).
constexpr float kGeluTwice = 1.5957691216057308F;  // 2 * sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

// gelu itself: x * P(X <= x), where P(X <= -|x|) = exp(-x^2 / 2) * t * p(t), t = 1 / (1 + c * |x|),
// with p fitted to be within 1.1e-7 of itself everywhere.
constexpr float kGeluShrink = 0.23164189F;
SKEIN_DEVICE constexpr float kGeluCoefficients[] = {
    -7.09360838e-2F, 2.49891594e-1F, -2.05613002e-1F, 2.29067937e-1F,
    1.14159388e-2F,  1.03342928e-1F, 9.02998820e-2F,  9.25308540e-2F};

SKEIN_DEVICE inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

// The second where one is NaN, as the machines do it.
SKEIN_DEVICE inline float larger(float a, float b) {
  return a > b ? a : b;
}
SKEIN_DEVICE inline float smaller(float a, float b) {
  return a < b ? a : b;
}

SKEIN_DEVICE inline float float_of_bits(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
SKEIN_DEVICE inline uint32_t bits_of_float(float x) {
  return __builtin_bit_cast(uint32_t, x);
}

// Within 1 ulp. 0 below kExpLowest, +inf above kExpHighest.
SKEIN_DEVICE inline float exp(float x) {
  const float shifted = fma(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float p = kExpCoefficients[0];
  for (size_t i = 1; i < 6; ++i) p = fma(p, r, kExpCoefficients[i]);
  p = fma(p, r * r, r) + 1.0F;
  const float y = float_of_bits(bits_of_float(p) + (bits_of_float(shifted) << 23));
  if (x < kExpLowest) return 0.0F;
  return x <= kExpHighest ? y : x * kInfinity;  // NaN stays NaN
}

// Within 2 ulp.
SKEIN_DEVICE inline float tanh(float x) {
  const float magnitude = float_of_bits(bits_of_float(x) & 0x7fffffffU);
  if (magnitude < kTanhSmall) {
    const float square = x * x;
    float p = kTanhCoefficients[0];
    for (size_t i = 1; i < 5; ++i) p = fma(p, square, kTanhCoefficients[i]);
    return fma(p * square, x, x);
  }
  const float y = 1.0F - 2.0F / (exp(magnitude + magnitude) + 1.0F);
  return float_of_bits(bits_of_float(y) | (bits_of_float(x) & 0x80000000U));
}

SKEIN_DEVICE inline float sigmoid(float x) {
  return 1.0F / (1.0F + exp(-x));
}

SKEIN_DEVICE inline float silu(float x) {
  return x / (1.0F + exp(-x));
}

SKEIN_DEVICE inline float gelu_tanh(float x) {
  const float twice = (kGeluTwice * x) * fma(kGeluCube * x, x, 1.0F);
  return x / (1.0F + exp(-twice));
}

// Within 4e-7 of |x| + 1.
SKEIN_DEVICE inline float gelu(float x) {
  const float magnitude = float_of_bits(bits_of_float(x) & 0x7fffffffU);
  const float t = 1.0F / fma(kGeluShrink, magnitude, 1.0F);
  float p = kGeluCoefficients[0];
  for (size_t i = 1; i < 8; ++i) p = fma(p, t, kGeluCoefficients[i]);
  const float tail = (p * t) * exp((x * -0.5F) * x);
  return x * (x < 0.0F ? tail : 1.0F - tail);
}

// softcap 0 means none.
SKEIN_DEVICE inline float cap(float x, float softcap) {
  return softcap == 0.0F ? x : softcap * tanh(x / softcap);
}

// 16 partial sums.
struct Lanes {
  float lane[kLanes] = {};

  // The fixed tree.
  SKEIN_DEVICE float sum() const {
    float t[kLanes];
    for (size_t l = 0; l < kLanes; ++l) t[l] = lane[l];
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) t[l] = t[l] + t[l + half];
    }
    return t[0];
  }
};

// The sum over k < count of a(k) * b(k).
template <class A, class B>
SKEIN_DEVICE float sum_of_products(size_t count, const A& a, const B& b) {
  Lanes lanes;
  for (size_t k = 0; k < count; ++k) {
    lanes.lane[k % kLanes] = fma(a(k), b(k), lanes.lane[k % kLanes]);
  }
  for (size_t k = count; k % kLanes != 0; ++k) {
    lanes.lane[k % kLanes] = fma(0.0F, 0.0F, lanes.lane[k % kLanes]);
  }
  return lanes.sum();
}

// The sum over k < count of a(k).
template <class A>
SKEIN_DEVICE float sum_of(size_t count, const A& a) {
  Lanes lanes;
  for (size_t k = 0; k < count; ++k) lanes.lane[k % kLanes] = lanes.lane[k % kLanes] + a(k);
  for (size_t k = count; k % kLanes != 0; ++k) {
    lanes.lane[k % kLanes] = lanes.lane[k % kLanes] + 0.0F;
  }
  return lanes.sum();
}

SKEIN_DEVICE inline float dot(const float* a, const float* b, size_t count) {
  return sum_of_products(
      count, [&](size_t k) { return a[k]; }, [&](size_t k) { return b[k]; });
}

// Columns that share a scale of the activations.
inline constexpr size_t kGroup = 32;
// Numbers whose largest magnitude is below this are all zeros: neither 127 / it nor it / 127 may
// leave the normal floats.
constexpr float kSmallestGroup = 0x1p-119F;
constexpr float kLargestInt8 = 127.0F;
constexpr uint32_t kInfinityBits = 0x7f800000U;

// x is about scale * to_int8(x, inverse). One x that is not finite makes the scale NaN, and with it
// the result of whoever uses it.
struct Int8Scale {
  float scale = 0;
  float inverse = 0;  // 0: all integers are 0
};

SKEIN_DEVICE inline Int8Scale int8_scale(const float* x, size_t count) {
  uint32_t largest = 0;
  for (size_t k = 0; k < count; ++k) {
    const uint32_t magnitude = bits_of_float(x[k]) & 0x7fffffffU;
    largest = largest > magnitude ? largest : magnitude;
  }
  if (largest >= kInfinityBits) return {__builtin_nanf(""), 0};
  if (float_of_bits(largest) < kSmallestGroup) return {};
  return {float_of_bits(largest) / kLargestInt8, kLargestInt8 / float_of_bits(largest)};
}

// To the nearest, even among equals.
SKEIN_DEVICE inline int8_t to_int8(float x, float inverse) {
  if (inverse == 0.0F) return 0;
  return static_cast<int8_t>((x * inverse + kRound) - kRound);
}

struct QuantizedGroup {
  int8_t q[kGroup] = {};
  float scale = 0;
};

SKEIN_DEVICE inline QuantizedGroup quantize_group(const float* x) {
  const Int8Scale scale = int8_scale(x, kGroup);
  QuantizedGroup group;
  group.scale = scale.scale;
  for (size_t k = 0; k < kGroup; ++k) group.q[k] = to_int8(x[k], scale.inverse);
  return group;
}

// Whether the largest magnitude of a group of a row is taken apart: it is more than 6 times the
// mean of the largest magnitudes of the row's `groups` groups, whose sum is a chain in their order.
// So fewer than every sixth group has one, and none where something is not finite.
constexpr float kOutlier = 6.0F;
SKEIN_DEVICE inline bool is_outlier(float largest, float largest_sum, size_t groups) {
  return largest * static_cast<float>(groups) > kOutlier * largest_sum;
}

// Adding an integer below 2^22 to the bits of this float adds it to the float.
constexpr float kDotBias = 0x1.8p23F;
constexpr int32_t kDotBiasBits = 0x4b400000;

// dot * scale, rounded once: scales have 11 bits at most, so that kDotBias * scale is exact. NaN
// where it is too large for a float.
SKEIN_DEVICE inline float product_of_dot(int32_t dot, float scale) {
  return fma(kDotBias + static_cast<float>(dot), scale, -kDotBias * scale);
}

SKEIN_DEVICE inline float float_of_bf16(uint16_t bits) {
  return float_of_bits(uint32_t{bits} << 16);
}

// To the nearest, even among equals. Subnormals become zero, as everywhere; a NaN stays one.
SKEIN_DEVICE inline uint16_t round_to_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > kInfinityBits) return static_cast<uint16_t>(bits >> 16 | 0x40);
  if (magnitude < 0x00800000U) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Whether a group of a row has residuals: its largest magnitude is more than 8 times the root of
// the mean square of the row's `count` elements, whose squares are summed as above. So at most
// every second group has one.
constexpr float kRestSquare = 64.0F;
SKEIN_DEVICE inline bool has_residual(float largest, float square_sum, size_t count) {
  return largest * largest * static_cast<float>(count) > kRestSquare * square_sum;
}

struct CosSin {
  float cos, sin;
};

// In double and rounded once: within 1 ulp for |angle| below 2^20, which is a million positions.
// The quarter turn is in three parts, of which two have few bits, so that n times them is exact.
SKEIN_DEVICE inline CosSin cos_sin(float angle) {
  constexpr double kQuarter[] = {1.57079632673412561417, 6.07710050630396597660e-11,
                                 2.02226624879595063154e-21};
  constexpr double kRoundDouble = 0x1.8p52;
  const double x = angle;
  const double n = (x * 0.63661977236758134308 + kRoundDouble) - kRoundDouble;
  const double r = ((x - n * kQuarter[0]) - n * kQuarter[1]) - n * kQuarter[2];
  const double z = r * r;
  const double sin =
      r + r * z *
              (-1.0 / 6 +
               z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800)))));
  const double cos =
      1.0 +
      z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 +
                                       z * (1.0 / 40320 + z * (-1.0 / 3628800 + z / 479001600)))));
  // NaN and what is far out of range go to quadrant 0: they are NaN or noise anyway.
  const auto quadrant =
      n > -1e9 && n < 1e9 ? static_cast<uint32_t>(static_cast<int32_t>(n)) & 3 : 0;
  const double c = quadrant % 2 == 0 ? cos : sin;
  const double s = quadrant % 2 == 0 ? sin : cos;
  return {static_cast<float>(quadrant == 1 || quadrant == 2 ? -c : c),
          static_cast<float>(quadrant >= 2 ? -s : s)};
}

}  // namespace skein::arithmetic
