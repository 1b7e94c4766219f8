#include "tensor/tensor.h"

#include <gtest/gtest.h>
#include <vector>

#include "tensor/dequantize.h"

namespace skein {
namespace {

TEST(ElementType, BlocksAndIds) {
  EXPECT_EQ(info(ElementType::kQ4_K).block_elements, 256u);
  EXPECT_EQ(info(ElementType::kQ4_K).block_bytes, 144u);
  EXPECT_EQ(element_type_of_gguf_id(39), ElementType::kMXFP4);
  EXPECT_EQ(element_type_of_name("U32"), ElementType::kU32);
  for (const uint32_t id : {4U, 5U, 9U, 15U, 16U, 31U, 36U, 100U, kNoGgufId}) {
    EXPECT_FALSE(element_type_of_gguf_id(id)) << id;
  }
  EXPECT_TRUE(can_dequantize(ElementType::kMXFP4));
  EXPECT_FALSE(can_dequantize(ElementType::kI32));
}

TEST(Shape, CountsWithoutOverflow) {
  EXPECT_EQ(Shape({3, 64}).to_string(), "[3, 64]");
  EXPECT_EQ(*Shape({}).checked_elements(), 1u);
  EXPECT_EQ(*Shape({uint64_t{1} << 31, 4}).checked_elements(), uint64_t{1} << 33);
  EXPECT_FALSE(Shape({uint64_t{1} << 32, uint64_t{1} << 31}).checked_elements().ok());
  EXPECT_EQ(*checked_byte_size(ElementType::kQ4_0, {3, 64}), 108u);
  EXPECT_EQ(checked_byte_size(ElementType::kQ4_0, {3, 48}).message(),
            "rows of 48 elements are not a whole number of Q4_0 blocks of 32");
  EXPECT_FALSE(Shape::of(std::vector<uint64_t>(9, 1)).ok());
}

// An index that is cut to 32 bits would wrap here (sizes only: nothing is that large).
TEST(TensorView, RowsBeyond32Bits) {
  const TensorView view{ElementType::kQ8_0, {uint64_t{1} << 20, 1 << 20}, {}};
  EXPECT_EQ(view.elements(), uint64_t{1} << 40);
  EXPECT_EQ(view.rows(), uint64_t{1} << 20);
  EXPECT_EQ(view.row_bytes(), (uint64_t{1} << 20) / 32 * 34);
}

TEST(TensorViewDeathTest, RowsAreBounded) {
  const std::vector<std::byte> bytes(8);
  const TensorView view{ElementType::kF32, {2, 1}, bytes};
  EXPECT_EQ(view.row(1).data(), bytes.data() + 4);
  EXPECT_DEATH((void)view.row(2), "row 2 of 2");
}

}  // namespace
}  // namespace skein
