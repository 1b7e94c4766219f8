// Rotary positions: from what configs say to one angle per pair of dimensions.
//
// Every kind is fixed at load. Kinds that transformers changes with the current length (longrope,
// dynamic) are decided by the served context instead, so that a token's keys never depend on how
// far its sequence has come.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "model/spec.h"

namespace skein {

enum class RopeKind : uint8_t {
  kPlain,
  kLinear,   // positions divided by factor
  kLlama3,   // long wavelengths divided by factor, short ones kept, a ramp between
  kYarn,     // the same by number of turns within the original context; cos and sin grow too
  kFactors,  // each frequency divided by a factor of its own (longrope, GGUF's rope_freqs)
};

struct RopeParams {
  RopeKind kind = RopeKind::kPlain;
  double theta = 10'000;
  uint32_t dims = 0;  // that turn; even
  double factor = 1;
  double original_context = 0;  // kLlama3, kYarn
  double low_freq_factor = 1;   // kLlama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // kYarn
  double beta_slow = 1;
  bool truncate = true;
  std::vector<float> factors{};       // kFactors: dims / 2
  std::optional<double> magnitude{};  // of cos and sin; else what the kind says
};

// Errors name the parameter and its value.
Result<RopeSpec> make_rope(const RopeParams& params);

// The magnitude of longrope, as transformers computes it.
double longrope_magnitude(double context, double original_context);

// The magnitude of yarn: 1 + 0.1 * mscale * ln(factor).
double yarn_magnitude(double factor, double mscale);

}  // namespace skein
