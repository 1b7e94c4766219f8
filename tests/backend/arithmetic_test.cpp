// The functions of arithmetic.h against libm in double.
#include "backend/arithmetic.h"

#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "backend/host/flush_denormals.h"
#include "backend/same_bits.h"
#include "base/rng.h"
#include "base/special_floats.h"

namespace skein {
namespace {

using testing::kInf;
using testing::kNan;

// The distance of `got` from `want` in units of the last place of `want` as a float.
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(std::abs(want));
  const double ulp = std::max(std::nextafter(rounded, kInf) - rounded, 0x1p-149F);
  return std::abs(static_cast<double>(got) - want) / ulp;
}

// The largest error over floats in [low, high], evenly spaced in their bits: both signs of zero and
// every binade get their share.
double worst(const std::function<float(float)>& ours, const std::function<double(double)>& libm,
             float low, float high, uint32_t samples) {
  double worst = 0;
  for (uint32_t i = 0; i < samples; ++i) {
    const double share = static_cast<double>(random_at(7, i) >> 11) * 0x1p-53;
    // Half of them even in value, half of them even in magnitude.
    float x = static_cast<float>(low + (static_cast<double>(high) - low) * share);
    if (i % 2 == 0) x = static_cast<float>(x * std::exp2(-static_cast<double>(i % 64)));
    worst = std::max(worst, ulps(ours(x), libm(x)));
  }
  return worst;
}

double exact_gelu(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Arithmetic, ExpIsWithinOneUlp) {
  const auto exp = [](double x) { return std::exp(x); };
  EXPECT_LT(worst(arithmetic::exp, exp, -87.33F, 88.72F, 4'000'000), 1.0);
}

TEST(Arithmetic, ExpEndsInZeroInfinityAndNan) {
  EXPECT_EQ(arithmetic::exp(0.0F), 1.0F);
  EXPECT_EQ(arithmetic::exp(-0.0F), 1.0F);
  EXPECT_EQ(arithmetic::exp(-kInf), 0.0F);
  EXPECT_EQ(arithmetic::exp(-87.34F), 0.0F);
  EXPECT_GE(arithmetic::exp(-87.33F), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(arithmetic::exp(88.72283F)));
  EXPECT_EQ(arithmetic::exp(88.723F), kInf);
  EXPECT_EQ(arithmetic::exp(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(arithmetic::exp(kInf), kInf);
  EXPECT_TRUE(std::isnan(arithmetic::exp(kNan)));
  EXPECT_TRUE(std::isnan(arithmetic::exp(std::bit_cast<float>(0x7fc001ffU))));
  EXPECT_TRUE(std::isnan(arithmetic::exp(std::bit_cast<float>(0xffc00001U))));
}

TEST(Arithmetic, TanhIsWithinTwoUlps) {
  const auto tanh = [](double x) { return std::tanh(x); };
  EXPECT_LT(worst(arithmetic::tanh, tanh, -10, 10, 4'000'000), 2.0);
  EXPECT_EQ(arithmetic::tanh(kInf), 1.0F);
  EXPECT_EQ(arithmetic::tanh(-kInf), -1.0F);
  EXPECT_EQ(arithmetic::tanh(-0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(arithmetic::tanh(kNan)));
}

TEST(Arithmetic, SigmoidSiluAndGeluAreWithinAFewUlps) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LT(worst(arithmetic::sigmoid, sigmoid, -80, 80, 1'000'000), 3.0);
  EXPECT_LT(worst(arithmetic::silu, silu, -80, 80, 1'000'000), 3.0);
  // The exponent's rounding is magnified by its size, as in every float32 gelu.
  EXPECT_LT(worst(arithmetic::gelu_tanh, exact_gelu, -2, 10, 1'000'000), 10.0);
  EXPECT_EQ(arithmetic::gelu_tanh(100.0F), 100.0F);
  EXPECT_EQ(arithmetic::gelu_tanh(-100.0F), 0.0F);
  EXPECT_TRUE(std::isnan(arithmetic::silu(kNan)));
}

TEST(Arithmetic, GeluIsNearTheErrorFunctions) {
  double worst_share = 0;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    const double share = static_cast<double>(random_at(8, i) >> 11) * 0x1p-53;
    const auto x = static_cast<float>(-14 + 28 * share);
    const double exact = 0.5 * double{x} * std::erfc(-double{x} / std::sqrt(2.0));
    worst_share =
        std::max(worst_share, std::abs(double{arithmetic::gelu(x)} - exact) / (1 + std::abs(x)));
  }
  EXPECT_LT(worst_share, 4e-7);
  EXPECT_EQ(arithmetic::gelu(0.0F), 0.0F);
  EXPECT_EQ(arithmetic::gelu(100.0F), 100.0F);
  EXPECT_EQ(arithmetic::gelu(-100.0F), 0.0F);
  EXPECT_EQ(arithmetic::gelu(kInf), kInf);
  EXPECT_TRUE(std::isnan(arithmetic::gelu(kNan)));
}

TEST(Arithmetic, CosAndSinAreWithinOneUlpOfAMillionPositions) {
  double worst_cos = 0, worst_sin = 0;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    const float x = static_cast<float>(random_at(9, i) % 1'000'000) *
                    std::exp2(-static_cast<float>(i % 24) / 2);
    const auto [cos, sin] = arithmetic::cos_sin(i % 2 == 0 ? x : -x);
    const double exact = i % 2 == 0 ? x : -static_cast<double>(x);
    worst_cos = std::max(worst_cos, ulps(cos, std::cos(exact)));
    worst_sin = std::max(worst_sin, ulps(sin, std::sin(exact)));
  }
  EXPECT_LT(worst_cos, 1.0);
  EXPECT_LT(worst_sin, 1.0);
  EXPECT_EQ(arithmetic::cos_sin(0.0F).cos, 1.0F);
  EXPECT_EQ(arithmetic::cos_sin(0.0F).sin, 0.0F);
  EXPECT_TRUE(std::isnan(arithmetic::cos_sin(kNan).cos));
}

TEST(Arithmetic, IsTheSameWithSubnormalsFlushed) {
  for (uint32_t i = 0; i < 300'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random_at(11, i)));
    if (std::fpclassify(x) == FP_SUBNORMAL) continue;
    const float exp = arithmetic::exp(x), tanh = arithmetic::tanh(x);
    const FlushDenormals flush;
    ASSERT_TRUE(same_bits(arithmetic::exp(x), exp)) << x;
    ASSERT_TRUE(same_bits(arithmetic::tanh(x), tanh)) << x;
  }
}

TEST(Arithmetic, SumsGoThroughLanesAndTree) {
  // 2^24 + 1 rounds away: what comes out says in which order the ones met it.
  std::vector<float> ones(48, 1.0F), x(48, 1.0F);
  x[0] = 0x1p24F;
  // Lane 0: 2^24 + 1 + 1 stays; then + lane 8 (3), + lanes 4 (6), 2 (12), 1 (24).
  EXPECT_EQ(arithmetic::dot(x.data(), ones.data(), 48), 0x1p24F + 4 + 6 + 12 + 24);
  EXPECT_EQ(arithmetic::dot(x.data(), ones.data(), 0), 0.0F);
}

TEST(FlushDenormals, LastsAsLongAsItLives) {
  volatile float tiny = std::numeric_limits<float>::min();
  {
    const FlushDenormals flush;
    EXPECT_EQ(tiny / 2, 0.0F);
  }
  EXPECT_GT(tiny / 2, 0.0F);
}

}  // namespace
}  // namespace skein
