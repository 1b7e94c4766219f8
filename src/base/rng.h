// Counter-based randomness: a value is a pure function of (seed, counters), so it does not depend
// on how many values anyone drew before. That is what keeps a sampled token the same at any load.
#pragma once

#include <cstdint>

namespace skein {

// The finalizer of splitmix64: a bijection on 64 bits that passes for random.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr uint64_t random_at(uint64_t seed, uint64_t a, uint64_t b = 0) {
  return mix64(mix64(mix64(seed) ^ a) ^ b);
}

// The high half of a 64 x 64 bit product, by 32-bit parts: with random bits as `a` it is uniform in
// [0, b).
constexpr uint64_t high_half(uint64_t a, uint64_t b) {
  const uint64_t mid =
      (a >> 32) * (b & 0xffffffffU) + (((a & 0xffffffffU) * (b & 0xffffffffU)) >> 32);
  const uint64_t cross = (a & 0xffffffffU) * (b >> 32) + (mid & 0xffffffffU);
  return (a >> 32) * (b >> 32) + (mid >> 32) + (cross >> 32);
}

// A sequence over random_at for callers that draw many values in a row.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : seed_(seed) {}

  constexpr uint64_t next() { return random_at(seed_, counter_++); }
  // Uniform in [0, bound); bound > 0.
  constexpr uint64_t below(uint64_t bound) { return high_half(next(), bound); }
  constexpr uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  constexpr bool chance(uint64_t numerator, uint64_t denominator) {
    return below(denominator) < numerator;
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace skein
