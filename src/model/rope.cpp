#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace skein {
namespace {

Status check_number(std::string_view what, double value, double above, double limit) {
  if (std::isfinite(value) && value > above && value <= limit) return ok_status();
  return invalid_argument("rope {} is {}, it must be above {} and at most {}", what, value, above,
                          limit);
}

// Frequencies are divided by factors: one near zero makes them infinite.
constexpr double kMinFactor = 1e-9;
constexpr double kMaxFactor = 1e9;

Status check_params(const RopeParams& p) {
  if (p.dims == 0 || p.dims % 2 != 0 || p.dims > kMaxHeadDim) {
    return invalid_argument("{} rotary dimensions, it must be an even number, 2 to {}", p.dims,
                            kMaxHeadDim);
  }
  SKEIN_TRY(check_number("theta", p.theta, 1, 1e12));
  if (p.kind == RopeKind::kPlain) return ok_status();
  if (p.kind == RopeKind::kFactors) {
    if (p.factors.size() != p.dims / 2) {
      return invalid_argument("{} rope factors, {} rotary dimensions need {}", p.factors.size(),
                              p.dims, p.dims / 2);
    }
    for (const float factor : p.factors)
      SKEIN_TRY(check_number("factor", factor, kMinFactor, kMaxFactor));
    return ok_status();
  }
  SKEIN_TRY(check_number("factor", p.factor, kMinFactor, kMaxFactor));
  if (p.kind == RopeKind::kLinear) return ok_status();
  SKEIN_TRY(check_number("original context", p.original_context, 0, kMaxModelContext));
  if (p.kind == RopeKind::kLlama3) {
    SKEIN_TRY(check_number("low_freq_factor", p.low_freq_factor, 0, 1e9));
    return check_number("high_freq_factor", p.high_freq_factor, p.low_freq_factor, 1e9);
  }
  SKEIN_TRY(check_number("beta_slow", p.beta_slow, 0, 1e9));
  return check_number("beta_fast", p.beta_fast, 0, 1e9);
}

double llama3_frequency(const RopeParams& p, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < p.original_context / p.high_freq_factor) return frequency;
  if (wavelength > p.original_context / p.low_freq_factor) return frequency / p.factor;
  const double smooth = (p.original_context / wavelength - p.low_freq_factor) /
                        (p.high_freq_factor - p.low_freq_factor);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

// The (fractional) pair that turns `turns` times within the original context.
double yarn_pair(const RopeParams& p, double turns) {
  return p.dims * std::log(p.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(p.theta));
}

std::vector<double> yarn_frequencies(const RopeParams& p, std::vector<double> plain) {
  double low = yarn_pair(p, p.beta_fast);
  double high = yarn_pair(p, p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, p.dims - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    plain[i] = plain[i] / p.factor * ramp + plain[i] * (1 - ramp);
  }
  return plain;
}

}  // namespace

double longrope_magnitude(double context, double original_context) {
  const double factor = context / original_context;
  if (factor <= 1) return 1;
  return std::sqrt(1 + std::log(factor) / std::log(original_context));
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

Result<RopeSpec> make_rope(const RopeParams& p) {
  SKEIN_TRY(check_params(p));
  std::vector<double> frequencies(p.dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(p.theta, -2.0 * static_cast<double>(i) / p.dims);
  }
  double magnitude = 1;
  switch (p.kind) {
    case RopeKind::kPlain:
      break;
    case RopeKind::kLinear:
      for (double& f : frequencies) f /= p.factor;
      break;
    case RopeKind::kLlama3:
      for (double& f : frequencies) f = llama3_frequency(p, f);
      break;
    case RopeKind::kYarn:
      frequencies = yarn_frequencies(p, std::move(frequencies));
      magnitude = yarn_magnitude(p.factor, 1);
      break;
    case RopeKind::kFactors:
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= p.factors[i];
      break;
  }
  RopeSpec rope;
  rope.frequencies.assign(frequencies.begin(), frequencies.end());
  rope.magnitude = static_cast<float>(p.magnitude.value_or(magnitude));
  return rope;
}

}  // namespace skein
