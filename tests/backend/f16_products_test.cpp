// F16 products (f16_products.h): what a tensor core of Hopper does, fact by fact, and how rows and
// matrices become float16 numbers.
#include "backend/f16_products.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "backend/f16_tiles.h"
#include "backend/random_weights.h"
#include "backend/same_bits.h"
#include "backend/weight_parts.h"
#include "base/special_floats.h"
#include "tensor/quant/float.h"

namespace skein {
namespace {

using arithmetic::add_f16_products;
using quant::f32_of_f16;

using testing::kInf;

// `count` products a * b, the rest zeros.
float add(float sum, size_t count, float a, float b) {
  std::array<uint16_t, 16> x{}, y{};
  for (size_t i = 0; i < count; ++i) {
    x[i] = arithmetic::round_to_f16(a);
    y[i] = arithmetic::round_to_f16(b);
  }
  return add_f16_products(sum, x.data(), y.data());
}

TEST(F16Products, TermsAreCutBelow25BitsOfTheLargest) {
  EXPECT_EQ(add(1, 2, 0x1p-12F, 0x1p-12F), 1 + 0x1p-23F);  // a float's own sum would lose both
  EXPECT_EQ(add(1, 4, 0x1p-12F, 0x1p-13F), 1 + 0x1p-23F);
  EXPECT_EQ(add(1, 8, 0x1p-13F, 0x1p-13F), 1.0F);
  EXPECT_EQ(add(0x1p-24F, 1, 1, 1), 1.0F);
  EXPECT_EQ(add(0x1p-23F, 1, 1, 1), 1 + 0x1p-23F);
}

TEST(F16Products, SumsAreCutTowardZero) {
  EXPECT_EQ(add(1, 1, 0x1p-12F, 0x1p-12F), 1.0F);
  EXPECT_EQ(add(-1, 1, -0x1p-12F, 0x1p-12F), -1.0F);
  EXPECT_EQ(add(1, 1, -0x1p-12F, 0x1p-13F), 1 - 0x1p-24F);
  EXPECT_EQ(add(-1, 1, 0x1p-12F, 0x1p-13F), -1 + 0x1p-24F);
}

// The significand of 1.5 * 1.5 is above 2; its exponent counts as 0 all the same.
TEST(F16Products, ProductsAreNotNormalizedBeforeTheyAreAligned) {
  EXPECT_EQ(add(0x1p-25F, 1, 1.5F, 1.5F), 2.25F);
  std::array<uint16_t, 16> x{}, y{};
  x.fill(arithmetic::round_to_f16(0x1p-12F));
  y.fill(arithmetic::round_to_f16(0x1p-13F));
  x[0] = y[0] = arithmetic::round_to_f16(1.5F);
  // 15 times 2^-25 are 1.9 units of the result; aligned to 2, each of them would have been cut off.
  EXPECT_EQ(add_f16_products(0, x.data(), y.data()), 2.25F + 0x1p-22F);
}

TEST(F16Products, ZerosTakeNoPartAndChangeNothing) {
  for (const float sum : {0x1p-40F, -0x1.8p-140F, 0x1.fffffep127F}) {
    EXPECT_EQ(add(sum, 16, 0, 30000), sum);
    EXPECT_EQ(add(sum, 16, -0.0F, 30000), sum);
  }
  EXPECT_TRUE(same_bits(add(-0.0F, 16, 0, 1), 0.0F));
  EXPECT_TRUE(same_bits(add(1, 1, -1, 1), 0.0F));
}

// A subnormal counts as if its leading bit were where that of 2^-14 is.
TEST(F16Products, SubnormalsKeepTheirExponent) {
  EXPECT_EQ(add(0x1p-41F, 1, 0x1p-24F, 1), 0x1p-24F);
  EXPECT_EQ(add(0x1p-39F, 1, 0x1p-24F, 1), 0x1p-24F + 0x1p-39F);
  EXPECT_EQ(add(0, 1, 0x1p-24F, 0x1p-24F), 0x1p-48F);
}

TEST(F16Products, WhatIsNotFinite) {
  EXPECT_EQ(add(0, 1, kInf, 2), kInf);
  EXPECT_EQ(add(0, 1, kInf, -2), -kInf);
  EXPECT_EQ(add(-kInf, 1, 1, 1), -kInf);
  EXPECT_TRUE(std::isnan(add(0, 1, kInf, 0)));
  EXPECT_TRUE(std::isnan(add(-kInf, 1, kInf, 1)));
  EXPECT_TRUE(std::isnan(add(0, 1, std::nanf(""), 0)));
  EXPECT_TRUE(std::isnan(add(std::nanf(""), 0, 0, 0)));
}

TEST(F16Products, TheOrderWithinAGroupIsFree) {
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    std::array<uint16_t, 16> x, y, turned_x, turned_y;
    for (size_t k = 0; k < 16; ++k) {
      x[k] = static_cast<uint16_t>(rng.next() & 0xfbff);
      y[k] = static_cast<uint16_t>(rng.next() & 0xfbff);
    }
    const size_t turn = rng.below(16);
    for (size_t k = 0; k < 16; ++k) {
      turned_x[k] = x[(k * 3 + turn) % 16];
      turned_y[k] = y[(k * 3 + turn) % 16];
    }
    const float sum = random_float(rng) * 1000;
    const float got = add_f16_products(sum, x.data(), y.data());
    ASSERT_TRUE(same_bits(got, add_f16_products(sum, turned_x.data(), turned_y.data())));
    double exact = sum, largest = std::abs(sum);
    for (size_t k = 0; k < 16; ++k) {
      const double product = static_cast<double>(f32_of_f16(x[k])) * f32_of_f16(y[k]);
      exact += product;
      largest = std::max(largest, std::abs(product));
    }
    ASSERT_LE(std::abs(got - exact), 17 * 0x1p-25 * largest + 0x1p-23 * std::abs(exact));
  }
}

// The same rules over the exponents of bfloat16, where a sum can become too small or too large.
TEST(Bf16Products, HaveTheRangeOfFloats) {
  const auto add = [](float sum, size_t count, float a, float b) {
    std::array<uint16_t, 16> x{}, y{};
    for (size_t i = 0; i < count; ++i) {
      x[i] = arithmetic::round_to_bf16(a);
      y[i] = arithmetic::round_to_bf16(b);
    }
    return arithmetic::add_bf16_products(sum, x.data(), y.data());
  };
  EXPECT_EQ(add(1, 4, 0x1p-12F, 0x1p-13F), 1 + 0x1p-23F);
  EXPECT_EQ(add(1, 8, 0x1p-13F, 0x1p-13F), 1.0F);
  EXPECT_EQ(add(0, 1, 0x1p-70F, 0x1p-70F), 0x1p-140F);
  EXPECT_TRUE(same_bits(add(0, 1, -0x1p-80F, 0x1p-80F), 0.0F));
  EXPECT_EQ(add(0, 1, 0x1p64F, 0x1p64F), kInf);
  EXPECT_EQ(add(0, 3, 0x1p126F, -1), -0x1.8p127F);
  EXPECT_EQ(add(0, 4, 0x1p126F, -1), -kInf);
  EXPECT_TRUE(std::isnan(add(0, 1, kInf, 0)));
}

TEST(F16Segments, DependOnTheShapeAlone) {
  const auto expect = [](size_t outputs, size_t inputs, uint32_t count, uint32_t each) {
    const auto segments = arithmetic::f16_segments(outputs, inputs);
    EXPECT_EQ(segments.count, count) << outputs << " x " << inputs;
    EXPECT_EQ(segments.inputs, each) << outputs << " x " << inputs;
  };
  expect(4096, 14336, 8, 1792);
  expect(8192, 4096, 8, 512);
  expect(8193, 4096, 1, 4096);
  expect(2048, 2048, 8, 256);
  expect(576, 576, 2, 320);
  expect(64, 1100, 4, 320);
  expect(64, 2176, 7, 320);  // 34 blocks, 5 in a segment: seven suffice
  expect(64, 1, 1, 64);
}

TEST(F16Rows, AreScaledToTheTopOfFloat16) {
  Rng rng(6);
  for (const int exponent : {-100, -20, 0, 13, 30, 100}) {
    std::vector<float> row = random_floats(100, rng);
    for (float& x : row) x = std::ldexp(x, exponent);
    std::vector<uint16_t> rounded(row.size());
    const int32_t scale = arithmetic::round_row_to_f16(row.data(), row.size(), rounded.data());
    float largest = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const float back = std::ldexp(f32_of_f16(rounded[i]), -scale);
      largest = std::max(largest, std::abs(f32_of_f16(rounded[i])));
      EXPECT_LE(std::abs(back - row[i]), std::abs(row[i]) * 0x1p-11F);
    }
    EXPECT_GE(largest, 0x1p14F);
    EXPECT_LE(largest, 0x1p15F);
  }
  uint16_t rounded[2];
  const float zeros[] = {0, -0.0F}, infinite[] = {kInf, 3}, tiny[] = {0x1p-126F, 0};
  EXPECT_EQ(arithmetic::round_row_to_f16(zeros, 2, rounded), 0);
  EXPECT_EQ(rounded[1], 0x8000);
  EXPECT_EQ(arithmetic::round_row_to_f16(infinite, 2, rounded), 0);
  EXPECT_EQ(f32_of_f16(rounded[1]), 3.0F);
  EXPECT_EQ(arithmetic::round_row_to_f16(tiny, 2, rounded), 126);
  EXPECT_EQ(f32_of_f16(rounded[0]), 1.0F);
}

// Weights of every type as the file has them: of 16 bits exactly, and of all within a float16's
// half unit.
TEST(F16Tiles, HoldTheWeightsOfEveryType) {
  Rng rng(7);
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    constexpr size_t kOutputs = 67, kInputs = 768;
    const OwnedTensor w = random_tensor(type, kOutputs, kInputs, rng);
    const F16Tiles tiles = F16Tiles::of(kOutputs, kInputs);
    std::vector<std::byte> blocks(tiles.block_bytes(), std::byte{0xff});
    for (uint32_t n = 0; n < kOutputs; ++n) {
      std::vector<float> row(kInputs);
      dequantize_row(w.view, n, row);
      std::byte* const own = blocks.data() + n / kTileRows * tiles.row_block_bytes();
      const float scale = pack_f16_row(row, n % kTileRows, tiles, own);
      float largest = 0;
      for (const float x : row) largest = std::max(largest, std::abs(x));
      const bool exact = type == ElementType::kF16 || type == ElementType::kBF16;
      for (uint32_t k = 0; k < kInputs; ++k) {
        const std::byte* const at = own + size_t{k / kTileInputs} * kTileBytes +
                                    offset_in_tile(n % kTileRows, k % kTileInputs);
        const float back = f32_of_f16(quant::load<uint16_t>(at)) * scale;
        const float bound =
            exact ? largest * 0x1p-29F : std::abs(row[k]) * 0x1p-11F + largest * 0x1p-38F;
        ASSERT_LE(std::abs(back - row[k]), bound) << n << " " << k;
      }
    }
  }
}

TEST(F16Tiles, EndWithZeros) {
  const F16Tiles tiles = F16Tiles::of(1, 70);
  EXPECT_EQ(tiles.input_blocks(), 2U);
  EXPECT_EQ(tiles.block_bytes(), 2 * kTileBytes);
  EXPECT_EQ(tiles.bytes(), 2 * kTileBytes + 64 * sizeof(float));
  std::vector<std::byte> blocks(tiles.block_bytes(), std::byte{0xff});
  pack_f16_row(std::vector<float>(70, 1.0F), 5, tiles, blocks.data());
  for (uint32_t k = 0; k < 128; ++k) {
    const auto bits =
        quant::load<uint16_t>(blocks.data() + k / 64 * kTileBytes + offset_in_tile(5, k % 64));
    EXPECT_EQ(f32_of_f16(bits), k < 70 ? 0x1p14F : 0.0F) << k;
  }
  // No two of its pieces share a place, nor do rows.
  std::vector<bool> taken(kTileBytes / 2);
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t k = 0; k < 64; ++k) {
      ASSERT_FALSE(taken[offset_in_tile(row, k) / 2]);
      taken[offset_in_tile(row, k) / 2] = true;
    }
  }
}

}  // namespace
}  // namespace skein
