// Activations that tower above the others of their row, in products with integers of 8 bits.
#include <cmath>

#include "backend/conformance.h"

namespace skein {
namespace {

constexpr size_t kInputs = 512, kOutputs = 37, kRows = 64;

class OutlierOps : public Conformance {
 protected:
  // Row i: nothing towers, one column does (every place of a group comes by), two groups have one,
  // or a group has two that are equal.
  OwnedRows rows_that_tower() {
    OwnedRows x = OwnedRows::random(kRows, kInputs, rng_);
    for (size_t i = 0; i < kRows; ++i) {
      if (i % 4 == 0) continue;
      const size_t at = i * 33 % kInputs;
      x.at(i)[at] = i % 8 < 4 ? 70.1F : -3e4F;
      if (i % 4 == 2) x.at(i)[(at + 200) % kInputs] = x.at(i)[at] * 1.01F;
      if (i % 4 == 3) x.at(i)[at / 32 * 32 + 31 - at % 32] = -x.at(i)[at];
    }
    return x;
  }

  OwnedRows products(TestBackend& backend, const Both& both, const OwnedRows& x,
                     const std::vector<float>& bias) {
    return run(backend, OwnedRows(x.rows(), kOutputs), [&](TestBackend& b, Rows out) {
      b->linear(b.up(x), of(b, both), bias.empty() ? nullptr : b.up(bias), out);
    });
  }

  void check(const WeightView& view) {
    const Both both = matrices({view});
    const OwnedRows x = rows_that_tower();
    const std::vector<float> bias = random_floats(kOutputs, rng_);
    const OwnedRows want = products(reference_, both, x, bias);
    for (const size_t rows : {size_t{1}, size_t{3}, size_t{9}, size_t{17}, kRows}) {
      ASSERT_TRUE(agree(products(backend_, both, x.part(0, rows), bias), want.part(0, rows)))
          << rows;
    }
    for (const size_t row : {1, 2, 3, 38}) {
      ASSERT_TRUE(agree(products(backend_, both, x.part(row, 1), bias), want.part(row, 1))) << row;
    }
  }
};

TEST_P(OutlierOps, EveryFormat) {
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    check(random_tensor(type, kOutputs, kInputs, rng_).view);
  }
  for (const uint32_t bits : {4U, 8U}) {
    SCOPED_TRACE(bits);
    check(random_affine({bits, 64}, ElementType::kBF16, kOutputs, kInputs, rng_).view);
  }
}

// Weights and activations of any magnitude, and what is not finite.
TEST_P(OutlierOps, AnyBitsAtAll) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const ElementType type : {ElementType::kQ4_1, ElementType::kQ6_K, ElementType::kMXFP4}) {
    const OwnedTensor w = random_tensor(type, kOutputs, kInputs, rng_, /*wild=*/true);
    const Both both = matrices({w.view});
    OwnedRows x = rows_that_tower();
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t k = 0; k < kInputs; ++k) {
        x.at(i)[k] = std::ldexp(x.at(i)[k], static_cast<int>(i) * 4 - 150);
      }
    }
    x.at(5)[300] = std::numeric_limits<float>::quiet_NaN();
    x.at(6)[0] = kInf;
    x.at(7)[511] = -kInf;
    EXPECT_TRUE(agree(products(backend_, both, x, {}), products(reference_, both, x, {})))
        << info(type).name;
  }
}

// What the others of its group lose by being rounded does not depend on how far one towers.
TEST_P(OutlierOps, NeighboursKeepTheirDigits) {
  const bool has_groups = GetParam().backend.profile == Profile::kHost;
  if (!has_groups || GetParam().precision != Precision::kDefault) return;
  for (const ElementType type : {ElementType::kQ4_0, ElementType::kQ4_1, ElementType::kQ8_0}) {
    const OwnedTensor w = random_tensor(type, kOutputs, kInputs, rng_);
    std::vector<float> weights(kOutputs * kInputs);
    dequantize(type, w.bytes, weights);
    const Both both = matrices({w.view});
    OwnedRows x = OwnedRows::random(1, kInputs, rng_);
    x.at(0)[77] = 1000.3F;
    const std::vector<float> got = products(backend_, both, x, {}).row(0);
    for (size_t n = 0; n < kOutputs; ++n) {
      double exact = 0, rounding = 0;
      for (size_t k = 0; k < kInputs; ++k) {
        const double product = static_cast<double>(x.at(0)[k]) * weights[n * kInputs + k];
        exact += product;
        rounding += std::abs(weights[n * kInputs + k]) / 254 + std::abs(product) * 0x1p-20;
      }
      ASSERT_LE(std::abs(got[n] - exact), rounding) << info(type).name << " " << n;
    }
  }
}

std::vector<BackendParam> params_of_outliers() {
  std::vector<BackendParam> params = backend_params_of_every_precision();
  std::erase_if(params, [](const BackendParam& p) {
    return p.precision == Precision::kF32 || (p.backend.is_emulated && p.threads > 1);
  });
  return params;
}

INSTANTIATE_TEST_SUITE_P(Backends, OutlierOps, ::testing::ValuesIn(params_of_outliers()),
                         param_name);

}  // namespace
}  // namespace skein
