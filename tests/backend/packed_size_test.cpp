// Packed weights take little more memory than the file's.
#include <cstdio>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/isas.h"
#include "backend/random_weights.h"
#include "backend/weight_parts.h"
#include "base/compute_pool.h"

namespace skein {
namespace {

// Of the file's bytes. Codes of 2, 3, 5 and 6 bits may be kept in larger ones.
double bound_for(double bits_per_weight) {
  const bool whole = bits_per_weight >= 8 || (bits_per_weight >= 4 && bits_per_weight <= 5);
  return whole ? 1.15 : 1.6;
}

double ratio_of(const Backend& backend, const WeightView& view) {
  return static_cast<double>(backend.matrix_bytes(view)) / static_cast<double>(bytes_of(view));
}

TEST(PackedSize, OfEveryTypeIsNearTheFiles) {
  ComputePool pool(1);
  for (const CpuIsa isa : available_isas()) {
    const auto backend = make_cpu_backend(pool, isa, Precision::kDefault);
    for (const ElementType type : kElementTypes) {
      if (!can_dequantize(type)) continue;
      const double bits = 8.0 * info(type).block_bytes / info(type).block_elements;
      for (const uint64_t columns : {512, 2048, 11008}) {
        const TensorView view{type, {4096, columns}, {}};
        const double ratio = ratio_of(*backend, view);
        EXPECT_LE(ratio, bound_for(bits)) << isa_name(isa) << " " << info(type).name;
        if (isa != CpuIsa::kScalar || columns != 2048) continue;
        std::printf("%-7s %6.3f bits a weight, packed %.3f of the file\n",
                    std::string(info(type).name).c_str(), bits, ratio);
      }
    }
  }
}

TEST(PackedSize, OfAffineGroupsIsNearTheFiles) {
  ComputePool pool(1);
  Rng rng(3);
  const auto backend = make_cpu_backend(pool, CpuIsa::kScalar, Precision::kDefault);
  for (const uint32_t bits : {4U, 8U}) {
    for (const uint32_t group : {32U, 64U}) {
      const OwnedAffine w = random_affine({bits, group}, ElementType::kF16, 64, 2048, rng);
      EXPECT_LE(ratio_of(*backend, w.view), 1.15) << bits << " " << group;
    }
  }
}

TEST(PackedSize, IsWhatAMatrixTakes) {
  ComputePool pool(1);
  Rng rng(4);
  const auto backend = make_cpu_backend(pool, CpuIsa::kScalar, Precision::kDefault);
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    const OwnedTensor w = random_tensor(type, 40, 512, rng);
    const WeightView view = w.view;
    const auto matrix = backend->make_matrix({&view, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.message();
    EXPECT_EQ((*matrix)->bytes(), backend->matrix_bytes(view)) << info(type).name;
  }
}

}  // namespace
}  // namespace skein
