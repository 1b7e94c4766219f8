// F16: products as the tensor cores of NVIDIA's Hopper compute them, defined so that a CPU can do
// the same, bit for bit. arithmetic.h has the other definitions and the words.
//
// A row of weights and a row of activations are each scaled by a power of two that brings the
// largest magnitude of the row into [2^14, 2^15) (f16_exponent) and rounded to float16. Nothing can
// overflow there, and of 16-bit weights nothing is lost but what lies 2^-32 below the largest of
// the row (2^-28 where it has all the bits of a float16).
//
// The inputs of a matrix are cut into segments (f16_segments), as its shape alone decides: a device
// can share them among its processors, and still every sum has one order. A segment is a chain over
// its groups of 16 inputs, from +0: what add_f16_products does. Inputs beyond the last are zeros,
// which change nothing. Then
//   out = ((s0 + s1) + s2 ...) * 2^-(exponent of the weights) * 2^-(that of the activations)
// in float32, in this order, and the bias is added last.
//
// Attention over a cache of bfloat16 or int8 is summed likewise, in bfloat16: a score is a chain
// over groups of 16 dimensions, a weighted value over groups of 16 tokens from the first of its
// span, either from +0 (add_bf16_products). All else is as arithmetic.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/arithmetic.h"

namespace skein::arithmetic {

// Products that go into a sum at once.
inline constexpr size_t kF16Group = 16;
// Inputs; segments begin at multiples of it.
inline constexpr size_t kF16Block = 64;

// `count` segments of `inputs` each; the last one may have fewer.
struct F16Segments {
  uint32_t count = 1;
  uint32_t inputs = 0;
};

// A matrix of many outputs keeps a device busy without segments.
constexpr F16Segments f16_segments(size_t outputs, size_t inputs) {
  constexpr size_t kManyOutputs = 8192, kFewestInputs = 256, kMost = 8;
  size_t count = outputs > kManyOutputs ? 1 : inputs / kFewestInputs;
  count = count < 1 ? 1 : count > kMost ? kMost : count;
  const size_t blocks = (inputs + kF16Block - 1) / kF16Block;
  const size_t each = blocks == 0 ? 1 : (blocks + count - 1) / count;
  const size_t used = blocks == 0 ? 1 : (blocks + each - 1) / each;
  return {static_cast<uint32_t>(used), static_cast<uint32_t>(each * kF16Block)};
}

// To the nearest float16, even among equals.
SKEIN_DEVICE inline uint16_t round_to_f16(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffU;
  constexpr uint32_t kOverflow = 0x477ff000;  // 65520, halfway to what would be 2^16
  constexpr uint32_t kNormal = 0x38800000;    // 2^-14
  if (magnitude > kInfinityBits) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= kOverflow) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < kNormal) {
    // Adding 2^-1 leaves multiples of 2^-24, which are float16's subnormals, in the low bits.
    const float shifted = float_of_bits(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (bits_of_float(shifted) - 0x3f000000));
  }
  const uint32_t rebiased = magnitude - ((127 - 15) << 23);
  return static_cast<uint16_t>(sign | (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

// The exponent of a row, from the bits of its largest magnitude. 0 where that is zero or subnormal,
// and where it is not finite: then the results are not either.
SKEIN_DEVICE inline int32_t f16_exponent(uint32_t largest) {
  constexpr int32_t kTop = 14, kMost = 126;  // both 2^exponent and 2^-exponent are floats
  if (largest < 0x00800000U || largest >= kInfinityBits) return 0;
  const int32_t exponent = kTop - (static_cast<int32_t>(largest >> 23) - 127);
  return exponent > kMost ? kMost : exponent;
}

// For |exponent| <= 126.
SKEIN_DEVICE inline float power_of_two(int32_t exponent) {
  return float_of_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

// A row as float16 numbers, scaled by 2^(what is returned).
SKEIN_DEVICE inline int32_t round_row_to_f16(const float* x, size_t count, uint16_t* out) {
  uint32_t largest = 0;
  for (size_t k = 0; k < count; ++k) {
    const uint32_t magnitude = bits_of_float(x[k]) & 0x7fffffffU;
    largest = largest > magnitude ? largest : magnitude;
  }
  const int32_t exponent = f16_exponent(largest);
  const float scale = power_of_two(exponent);
  for (size_t k = 0; k < count; ++k) out[k] = round_to_f16(x[k] * scale);
  return exponent;
}

// A float of 16 bits: how many of them are the fraction, and where the exponent's zero is.
struct HalfFormat {
  int32_t fraction_bits, bias;
};
inline constexpr HalfFormat kFloat16{10, 15}, kBfloat16{7, 127};

// significand * 2^exponent, before and after it is aligned to others.
struct TensorTerm {
  static constexpr int32_t kNoExponent = -100000;  // a zero takes no part in the alignment
  int64_t significand = 0;
  int32_t exponent = kNoExponent;
};

// Finite bits as an integer with the fraction's bits and one more, and the exponent of its leading
// place. Subnormals are not normalized, which shows: the exponent decides what is cut off of other
// terms.
template <HalfFormat kFormat>
SKEIN_DEVICE inline TensorTerm tensor_term(uint16_t bits) {
  constexpr int32_t kOne = 1 << kFormat.fraction_bits;
  const int32_t exponent = (bits & 0x7fff) >> kFormat.fraction_bits, fraction = bits & (kOne - 1);
  const int32_t magnitude = exponent == 0 ? fraction : fraction + kOne;
  return {bits >> 15 != 0 ? -magnitude : magnitude, (exponent == 0 ? 1 : exponent) - kFormat.bias};
}

// What a sum is where a term is not finite; nothing where all are.
struct SpecialSum {
  bool nan = false, positive = false, negative = false;

  SKEIN_DEVICE bool any() const { return nan || positive || negative; }
  SKEIN_DEVICE float sum() const {
    if (nan || (positive && negative)) return float_of_bits(0x7fffffffU);
    return positive ? kInfinity : -kInfinity;
  }
  // `infinity` is that of the format of both.
  SKEIN_DEVICE void add_product(uint16_t a, uint16_t b, uint32_t infinity) {
    const uint32_t x = a & 0x7fffU, y = b & 0x7fffU;
    if (x < infinity && y < infinity) return;
    if (x > infinity || y > infinity || x == 0 || y == 0) {
      nan = true;
    } else {
      ((a ^ b) >> 15 != 0 ? negative : positive) = true;
    }
  }
  SKEIN_DEVICE void add(float sum) {
    const uint32_t bits = bits_of_float(sum), magnitude = bits & 0x7fffffffU;
    if (magnitude < kInfinityBits) return;
    nan = nan || magnitude > kInfinityBits;
    (bits >> 31 != 0 ? negative : positive) = true;
  }
};

// sum * 2^unit as a float, cut toward zero; subnormals stay, what is smaller is +0.
SKEIN_DEVICE inline float float_of_sum(int64_t sum, int32_t unit) {
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0.0F;
  int32_t top = 0;
  while (magnitude >> top > 1) ++top;
  const int32_t exponent = top + unit;
  const uint32_t sign = sum < 0 ? 0x80000000U : 0U;
  if (exponent > 127) return float_of_bits(sign | kInfinityBits);
  const bool subnormal = exponent < -126;
  const int32_t shift = (subnormal ? -126 : exponent) - 23 - unit;
  const uint64_t cut = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (cut == 0) return 0.0F;
  const auto fraction = static_cast<uint32_t>(cut) & 0x7fffffU;
  const uint32_t biased = subnormal ? 0U : static_cast<uint32_t>(exponent + 127);
  return float_of_bits(sign | biased << 23 | fraction);
}

// sum + the 16 products a[i] * b[i]. All 17 terms are aligned to the largest exponent among them (a
// product's is that of its factors added up, its significand being in [1, 4)), cut toward zero
// below 2^-25 of it, added exactly, and the result is cut toward zero to a float. That is what
// mma.sync.m16n8k16 and wgmma of any width do, so the order within the 16 is free.
template <HalfFormat kFormat>
SKEIN_DEVICE inline float add_products(float sum, const uint16_t* a, const uint16_t* b) {
  constexpr int32_t kKept = 25, kProductBits = 2 * kFormat.fraction_bits, kSumBits = 23;
  constexpr uint32_t kHalfInfinity = 0x7fffU >> kFormat.fraction_bits << kFormat.fraction_bits;
  SpecialSum special;
  TensorTerm terms[kF16Group + 1];
  int32_t top = TensorTerm::kNoExponent;
  for (size_t i = 0; i < kF16Group; ++i) {
    special.add_product(a[i], b[i], kHalfInfinity);
    const TensorTerm x = tensor_term<kFormat>(a[i]), y = tensor_term<kFormat>(b[i]);
    if (x.significand == 0 || y.significand == 0) continue;
    terms[i] = {x.significand * y.significand, x.exponent + y.exponent};
    top = top > terms[i].exponent ? top : terms[i].exponent;
  }
  special.add(sum);
  if (special.any()) return special.sum();
  const uint32_t bits = bits_of_float(sum), biased = bits >> 23 & 255;
  const int64_t fraction = (bits & 0x7fffffU) | (biased == 0 ? 0U : 0x800000U);
  if (fraction != 0) {
    TensorTerm& last = terms[kF16Group];
    last = {bits >> 31 != 0 ? -fraction : fraction,
            static_cast<int32_t>(biased == 0 ? 1 : biased) - 127};
    top = top > last.exponent ? top : last.exponent;
  }
  int64_t total = 0;
  for (size_t i = 0; i <= kF16Group; ++i) {
    const int64_t value = terms[i].significand;
    const int32_t down = top - terms[i].exponent;
    if (value == 0 || down >= 60) continue;
    const int32_t up = kKept - (i == kF16Group ? kSumBits : kProductBits);
    const int64_t cut = ((value < 0 ? -value : value) << up) >> down;
    total += value < 0 ? -cut : cut;
  }
  return float_of_sum(total, top - kKept);
}

SKEIN_DEVICE inline float add_f16_products(float sum, const uint16_t* a, const uint16_t* b) {
  return add_products<kFloat16>(sum, a, b);
}
SKEIN_DEVICE inline float add_bf16_products(float sum, const uint16_t* a, const uint16_t* b) {
  return add_products<kBfloat16>(sum, a, b);
}

}  // namespace skein::arithmetic
