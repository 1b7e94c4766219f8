// Every quantization: the kernels' dequantization is the reference's, and a product is within what
// float32 allows of the same product in float64.
#include <cmath>
#include <gtest/gtest.h>

#include "backend/backend_memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/host/flush_denormals.h"
#include "backend/isas.h"
#include "backend/reference/reference_backend.h"
#include "backend/same_bits.h"

namespace skein {
namespace {

constexpr size_t kOutputs = 67, kInputs = 1024, kRows = 5;

class MatmulAccuracy : public ::testing::TestWithParam<CpuIsa> {
 protected:
  // Rows of the table come out of embed() as dequantize() has them.
  void check_rows(const Matrix& matrix, const std::vector<float>& values) {
    std::vector<TokenId> ids(kOutputs);
    for (size_t i = 0; i < kOutputs; ++i) ids[i] = static_cast<TokenId>(i);
    const Rows got = backend_.up(OwnedRows(kOutputs, kInputs, 0));
    backend_->embed(matrix, backend_.begin(ids), 1.0F, got);
    const HostRows host = backend_->read(got);
    EXPECT_TRUE(same_bits({host.data, kOutputs * kInputs}, values));
  }

  // |error| <= (steps of a lane + depth of the tree) * eps * sum |x * w|
  void check_product(const Matrix& matrix, const std::vector<float>& weights) {
    OwnedRows x = OwnedRows::random(kRows, kInputs, rng_);
    const Rows out = backend_.up(OwnedRows(kRows, kOutputs));
    backend_->linear(backend_.up(x), matrix, nullptr, out);
    const HostRows got = backend_->read(out);
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t n = 0; n < kOutputs; ++n) {
        double exact = 0, magnitude = 0;
        for (size_t k = 0; k < kInputs; ++k) {
          const double product = static_cast<double>(x.at(i)[k]) * weights[n * kInputs + k];
          exact += product;
          magnitude += std::abs(product);
        }
        const double bound = (kInputs / 16.0 + 4) * 0x1p-24 * magnitude;
        ASSERT_LE(std::abs(got.row(i)[n] - exact), bound) << i << ", " << n;
        ASSERT_GT(magnitude, 0.0);
      }
    }
  }

  void check(const WeightView& view, const std::vector<float>& values) {
    const auto table = backend_->make_table({&view, 1});
    const auto matrix = backend_->make_matrix({&view, 1});
    ASSERT_TRUE(table.ok()) << table.message();
    ASSERT_TRUE(matrix.ok()) << matrix.message();
    check_rows(**table, values);
    check_product(**matrix, values);
  }

  ComputePool pool_{2};
  TestBackend backend_{make_cpu_backend(pool_, GetParam(), Precision::kF32)};
  Rng rng_{3};
};

TEST_P(MatmulAccuracy, EveryFormatOfTheTable) {
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    const OwnedTensor tensor = random_tensor(type, kOutputs, kInputs, rng_);
    std::vector<float> values(kOutputs * kInputs);
    dequantize(type, tensor.bytes, values);
    check(tensor.view, values);
  }
}

TEST_P(MatmulAccuracy, EveryAffineFormat) {
  for (const uint32_t bits : {4U, 8U}) {
    for (const uint32_t group : {32U, 64U, 128U}) {
      for (const ElementType side : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        const OwnedAffine affine = random_affine({bits, group}, side, kOutputs, kInputs, rng_);
        std::vector<float> values(kOutputs * kInputs);
        for (size_t n = 0; n < kOutputs; ++n) {
          affine.view.dequantize_row(n, std::span(values).subspan(n * kInputs, kInputs));
        }
        check(affine.view, values);
      }
    }
  }
}

// Random bytes give every scale there is: zero, subnormal, infinite, NaN.
TEST_P(MatmulAccuracy, DequantizesEveryBitPatternExactly) {
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    const OwnedTensor tensor = random_tensor(type, kOutputs, kInputs, rng_, /*wild=*/true);
    std::vector<float> values(kOutputs * kInputs);
    const WeightView view = tensor.view;
    const auto matrix = backend_->make_table({&view, 1});
    ASSERT_TRUE(matrix.ok());
    {
      const FlushDenormals flush;  // as in every op
      dequantize(type, tensor.bytes, values);
      volatile float one = 1.0F;
      for (float& value : values) value = value * one;
    }
    check_rows(**matrix, values);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, MatmulAccuracy, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace skein
