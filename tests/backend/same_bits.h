// Comparison of floats by their bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>

namespace skein {

// Equal bits, or both NaN: sign and payload of a NaN are the machine's choice.
inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline ::testing::AssertionResult same_bits(std::span<const float> got,
                                            std::span<const float> want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, not " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (same_bits(got[i], want[i])) continue;
    return ::testing::AssertionFailure() << "value " << i << " of " << got.size() << " is "
                                         << std::hexfloat << got[i] << ", not " << want[i];
  }
  return ::testing::AssertionSuccess();
}

// No further apart than `tolerance` times the largest magnitude there is in `want`; what is not
// finite is the same.
inline ::testing::AssertionResult within(std::span<const float> got, std::span<const float> want,
                                         float tolerance) {
  float largest = 0;
  for (const float x : want) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  if (got.size() != want.size()) return same_bits(got, want);
  for (size_t i = 0; i < got.size(); ++i) {
    if (same_bits(got[i], want[i]) || std::abs(got[i] - want[i]) <= tolerance * largest) continue;
    return ::testing::AssertionFailure()
           << "value " << i << " of " << got.size() << " is " << got[i] << ", " << want[i]
           << " was wanted within " << tolerance * largest;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace skein
