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
  return static_cast<double>(backend.matrix_bytes({&view, 1})) /
         static_cast<double>(bytes_of(view));
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
    EXPECT_EQ((*matrix)->bytes(), backend->matrix_bytes({&view, 1})) << info(type).name;
  }
}

// Every byte of the views once, in order; so that their pages can be given back meanwhile.
TEST(PackedSize, WhatIsPackedIsTold) {
  ComputePool pool(2);
  Rng rng(5);
  const OwnedTensor a = random_tensor(ElementType::kF16, 5000, 1024, rng);  // several slices
  const OwnedTensor b = random_tensor(ElementType::kQ4_K, 37, 1024, rng);
  const std::vector<WeightView> views = {a.view, b.view};
  for (const Precision precision : {Precision::kDefault, Precision::kF32}) {
    const auto backend = make_cpu_backend(pool, CpuIsa::kScalar, precision);
    std::vector<std::span<const std::byte>> told;
    const auto matrix = backend->make_matrix(
        views, [&](std::span<const std::byte> bytes) { told.push_back(bytes); });
    ASSERT_TRUE(matrix.ok()) << matrix.message();
    if ((*matrix)->reads_views()) {
      EXPECT_TRUE(told.empty());
      continue;
    }
    ASSERT_GE(told.size(), 3U);
    const std::byte* next = a.bytes.data();
    for (const std::span<const std::byte> bytes : told) {
      if (next == a.bytes.data() + a.bytes.size()) next = b.bytes.data();
      EXPECT_EQ(bytes.data(), next);
      next = bytes.data() + bytes.size();
    }
    EXPECT_EQ(next, b.bytes.data() + b.bytes.size());
  }
}

}  // namespace
}  // namespace skein
