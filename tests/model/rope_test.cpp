// Rope tables against numbers that Python computed from the published formulas.
#include "model/rope.h"

#include <gtest/gtest.h>
#include <map>

namespace skein {
namespace {

void expect_frequencies(const RopeParams& params, const std::map<size_t, double>& want) {
  const auto rope = make_rope(params);
  ASSERT_TRUE(rope.ok()) << rope.message();
  ASSERT_EQ(rope->frequencies.size(), params.dims / 2);
  for (const auto& [i, value] : want) {
    EXPECT_NEAR(rope->frequencies[i] / value, 1, 1e-6) << "frequency " << i;
  }
}

TEST(Rope, Plain) {
  expect_frequencies({.theta = 1e4, .dims = 8}, {{0, 1}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  EXPECT_EQ(make_rope({.theta = 1e4, .dims = 8})->magnitude, 1);
}

TEST(Rope, Linear) {
  expect_frequencies({.kind = RopeKind::kLinear, .theta = 1e4, .dims = 8, .factor = 8},
                     {{0, 0.125}, {1, 0.0125}, {3, 0.000125}});
}

TEST(Rope, Llama31) {
  expect_frequencies({.kind = RopeKind::kLlama3,
                      .theta = 5e5,
                      .dims = 128,
                      .factor = 8,
                      .original_context = 8192,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4},
                     {{0, 1},
                      {10, 0.128687373},
                      {28, 0.00321144599},
                      {29, 0.00216657076},
                      {30, 0.00137189357},
                      {32, 0.000524846161},
                      {34, 0.000178507813},
                      {35, 9.55621235e-05},
                      {36, 7.78465527e-05},
                      {63, 3.06892599e-07}});
}

RopeParams gpt_oss() {
  return {.kind = RopeKind::kYarn,
          .theta = 150'000,
          .dims = 64,
          .factor = 32,
          .original_context = 4096};
}

TEST(Rope, YarnOfGptOssDoesNotRoundItsBorders) {
  RopeParams params = gpt_oss();
  params.truncate = false;
  expect_frequencies(params, {{0, 1},
                              {5, 0.155322989},
                              {8, 0.0508132748},
                              {9, 0.0317056962},
                              {12, 0.00679495949},
                              {16, 0.000456483919},
                              {17, 0.000129318701},
                              {18, 3.83088124e-05},
                              {31, 3.02351143e-07}});
  EXPECT_FLOAT_EQ(make_rope(params)->magnitude, 1.34657359F);
}

TEST(Rope, YarnRoundsItsBordersElsewhere) {
  expect_frequencies(gpt_oss(), {{8, 0.0508132748},
                                 {9, 0.0316207523},
                                 {12, 0.00701571391},
                                 {17, 0.000227947796},
                                 {18, 3.83088124e-05}});
  expect_frequencies(
      {.kind = RopeKind::kYarn, .theta = 1e6, .dims = 128, .factor = 4, .original_context = 32'768},
      {{0, 1},
       {10, 0.115478198},
       {24, 0.00537532149},
       {30, 0.00106436098},
       {35, 0.000246258407},
       {39, 6.49039432e-05},
       {40, 4.44569853e-05},
       {63, 3.1023444e-07}});
}

TEST(Rope, Magnitudes) {
  EXPECT_DOUBLE_EQ(yarn_magnitude(4, 1), 1.138629436111989);
  EXPECT_DOUBLE_EQ(yarn_magnitude(1, 1), 1);
  EXPECT_DOUBLE_EQ(longrope_magnitude(131'072, 4096), 1.1902380714238083);
  EXPECT_DOUBLE_EQ(longrope_magnitude(4096, 4096), 1);
  EXPECT_EQ(make_rope({.dims = 8, .magnitude = 0.5})->magnitude, 0.5F);
}

TEST(Rope, Factors) {
  expect_frequencies({.kind = RopeKind::kFactors, .theta = 1e4, .dims = 8, .factors = {1, 2, 4, 5}},
                     {{0, 1}, {1, 0.05}, {2, 0.0025}, {3, 0.0002}});
}

TEST(Rope, RefusesNonsense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<RopeParams> bad = {
      {.dims = 0},
      {.dims = 7},
      {.theta = 0, .dims = 8},
      {.theta = 1, .dims = 8},
      {.theta = nan, .dims = 8},
      {.kind = RopeKind::kLinear, .dims = 8, .factor = 0},
      {.kind = RopeKind::kLinear, .dims = 8, .factor = nan},
      {.kind = RopeKind::kFactors, .dims = 8, .factors = {1, 2, 3}},
      {.kind = RopeKind::kFactors, .dims = 8, .factors = {1, 2, 3, 0}},
      // Frequencies beyond what a float holds.
      {.kind = RopeKind::kFactors, .dims = 8, .factors = {1, 2, 3, 1e-45F}},
      {.kind = RopeKind::kLinear, .dims = 8, .factor = 1e-300},
      {.kind = RopeKind::kLlama3, .dims = 8, .factor = 8},
      {.kind = RopeKind::kLlama3,
       .dims = 8,
       .factor = 8,
       .original_context = 64,
       .low_freq_factor = 4,
       .high_freq_factor = 4},
      {.kind = RopeKind::kYarn, .dims = 8, .factor = 8},
      {.kind = RopeKind::kYarn, .dims = 8, .factor = 8, .original_context = 64, .beta_fast = 0},
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    const auto rope = make_rope(bad[i]);
    ASSERT_FALSE(rope.ok()) << i;
    EXPECT_EQ(rope.status().code(), Code::kInvalidArgument) << i;
  }
}

}  // namespace
}  // namespace skein
