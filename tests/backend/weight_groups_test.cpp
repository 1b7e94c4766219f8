// Integers and scales of quantized rows say what dequantization says.
#include "backend/weight_groups.h"

#include <cmath>
#include <gtest/gtest.h>

#include "backend/random_weights.h"
#include "backend/weight_parts.h"

namespace skein {
namespace {

constexpr size_t kRows = 5, kColumns = 512;

// Scales that the format has as they are; of the others 2^-11 may be lost, in scale and minimum.
bool is_exact(ElementType type) {
  return info(type).block_elements == 32;
}

void check(const WeightView& view, bool exact) {
  const GroupFormat format = *group_format(view);
  std::vector<WeightGroup> groups(kColumns / arithmetic::kGroup);
  std::vector<float> want(kColumns);
  for (size_t row = 0; row < kRows; ++row) {
    read_groups(view, row, groups);
    dequantize_row(view, row, want);
    for (size_t k = 0; k < kColumns; ++k) {
      const WeightGroup& group = groups[k / arithmetic::kGroup];
      const size_t in_group = k % arithmetic::kGroup, half = format.halves ? in_group / 16 : 0;
      const float scaled =
          format.scale(group.scale[half]) * static_cast<float>(format.value(group.code[in_group]));
      const float minimum = format.has_minimum ? format.scale(group.minimum[half]) : 0.0F;
      const float got = format.has_minimum ? scaled + minimum : scaled;
      if (exact) {
        ASSERT_EQ(got, want[k]) << row << ", " << k;
      } else {
        ASSERT_NEAR(got, want[k], 0x1p-11F * (std::abs(scaled) + std::abs(minimum)));
      }
    }
  }
}

TEST(WeightGroups, SayWhatDequantizationSays) {
  Rng rng(5);
  size_t formats = 0;
  for (const ElementType type : kElementTypes) {
    const OwnedTensor tensor = random_tensor(type, kRows, kColumns, rng);
    ASSERT_EQ(group_format(tensor.view).has_value(), info(type).quantized()) << info(type).name;
    if (!info(type).quantized()) continue;
    SCOPED_TRACE(info(type).name);
    check(tensor.view, is_exact(type));
    ++formats;
  }
  EXPECT_EQ(formats, 13U);
}

TEST(WeightGroups, SayWhatAffineGroupsSay) {
  Rng rng(6);
  for (const uint32_t bits : {4U, 8U}) {
    for (const uint32_t group : {32U, 64U, 128U}) {
      for (const ElementType side : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        const OwnedAffine affine = random_affine({bits, group}, side, kRows, kColumns, rng);
        check(affine.view, side != ElementType::kF32);
      }
    }
  }
}

}  // namespace
}  // namespace skein
