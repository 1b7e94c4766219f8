// A draw: one token of a row of logits, by temperature, top_k, top_p, min_p and 64 random bits.
//
// Weights are whole numbers, so that sums of them are exact in any order: the likeliest token's is
// kUnit, another's weight_of(exp((logit - largest) / temperature)), with the exp of arithmetic.h.
// Ranks go by the larger logit, then by the lower id. What is kept of a row, each filter of what
// the one before has left:
//   top_k  the tokens of the first top_k ranks, unless it is 0;
//   top_p  unless it is 1, those of the first ranks, until their weights have reached
//          share_of(whole, top_p). The whole is the weight of what top_k has kept or, without it,
//          the sum of the weights of the row's parts, of kPartTokens tokens each, of which one is
//          weight_of(the sum of its exps as arithmetic.h has it); but where what reaches
//          threshold_of(kLastStep) has less than that share of it, the sum of all weights;
//   min_p  those whose weight is at least share_of(kUnit, min_p).
// The draw is the kept token whose weight covers high_half(random, their sum), when they lie
// side by side in the order of ids.
// Where nothing is filtered it is the part whose weight covers that of the parts' sum, and the
// token of it that covers what is left; the last one that has weight, where rounding has made the
// part's larger than its tokens', or the first one above -inf where none has any by itself.
//
// engine/sampling/candidates.h draws so on the host, from rows that forms, penalties and typical_p
// have changed too; a device where its logits are (DrawQueue). Only functions that are the same on
// both are here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/arithmetic.h"

namespace skein {

struct Draw {
  float temperature = 0;  // 0: the largest logit, of the lowest id among equals
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t random = 0;

  // Below it a difference of logits that is next to nothing could matter, and processors that take
  // such a difference for zero would not agree with others.
  static constexpr float kColdest = 0x1p-20F;
};

namespace drawing {

inline constexpr size_t kPartTokens = 1024;
inline constexpr uint64_t kUnit = uint64_t{1} << 42;
// Powers of two of the likeliest token's weight: where to look for the likeliest first, further and
// last, and where a token weighs less than half a unit.
inline constexpr int kFirstStep = -8, kSecondStep = -14, kLastStep = -20, kWeightless = -44;

constexpr float kLowest = -0x1.fffffep127F;
constexpr float kSmallest = 0x1p-126F;

SKEIN_DEVICE inline uint64_t weight_of(float share) {
  return static_cast<uint64_t>(static_cast<double>(share) * static_cast<double>(kUnit));
}

SKEIN_DEVICE inline uint64_t share_of(uint64_t weight, float share) {
  return static_cast<uint64_t>(__builtin_ceil(static_cast<double>(weight) * double{share}));
}

SKEIN_DEVICE inline float inverse_of(float temperature) {
  const double inverse = 1 / double{temperature};
  return inverse < double{-kLowest} ? static_cast<float>(inverse) : -kLowest;
}

// A logit that every token of at least 2^exponent times the likeliest one's weight reaches. Never
// subnormal: a scan would take it for 0.
SKEIN_DEVICE inline float threshold_of(float largest, float temperature, int exponent) {
  constexpr double kLn2 = 0.69314718055994530942;
  const double logit = double{largest} + double{temperature} * exponent * kLn2;
  if (logit < double{kSmallest} && logit > -double{kSmallest}) return -kSmallest;
  if (logit <= double{kLowest}) return kLowest;
  // The next float below; away from zero where it is negative.
  const uint32_t bits = arithmetic::bits_of_float(static_cast<float>(logit));
  if (bits == arithmetic::bits_of_float(kLowest)) return kLowest;
  return arithmetic::float_of_bits(bits >> 31 != 0 ? bits + 1 : bits - 1);
}

}  // namespace drawing
}  // namespace skein
