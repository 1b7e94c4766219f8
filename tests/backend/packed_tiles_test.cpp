// Codes and scales give the numbers of f16_tiles.h again, bit for bit, whatever the format.
#include "backend/packed_tiles.h"

#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "backend/random_weights.h"
#include "base/rng.h"
#include "tensor/quant/float.h"

namespace skein {
namespace {

constexpr size_t kOutputs = 67, kInputs = 768;

// Numbers of 64 rows and the codes they were packed into, of which those of `row` are compared.
void expect_same_numbers(const F16Tiles& tiles, const std::vector<std::byte>& numbers,
                         const F16Tiles& packed, const std::vector<std::byte>& codes,
                         uint32_t row) {
  for (uint32_t k = 0; k < tiles.input_blocks() * kTileInputs; ++k) {
    const std::byte* const block = numbers.data() + size_t{k / kTileInputs} * kTileBytes;
    const auto bits = quant::load<uint16_t>(block + offset_in_tile(row, k % kTileInputs));
    const uint16_t made = number_in_strips(codes.data(), packed, row, k);
    // Zeros of either sign: no sum tells them apart.
    ASSERT_TRUE(bits == made || ((bits | made) & 0x7fff) == 0)
        << row << " " << k << ": " << bits << " " << made;
  }
}

// How many rows had a code for all of their numbers; all of these are compared, when all 64 that
// lie together are packed.
size_t rows_packed(const WeightParts& whole, const TileFormat& format) {
  const F16Tiles tiles = F16Tiles::of(whole.outputs(), whole.inputs());
  const F16Tiles packed = F16Tiles::of(whole.outputs(), whole.inputs(), format);
  EXPECT_LT(packed.bytes(), tiles.bytes());
  std::vector<std::byte> numbers(tiles.row_block_bytes()), codes(packed.row_block_bytes());
  size_t count = 0;
  for (uint32_t first = 0; first < packed.row_blocks() * kTileRows; first += kTileRows) {
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < kTileRows; ++i) {
      std::vector<float> row(whole.inputs());
      if (first + i < whole.outputs()) whole.dequantize_row(first + i, row);
      const float want = pack_f16_row(row, i, tiles, numbers.data());
      float power = 0;
      if (!pack_quantized_row(whole, first + i, packed, codes.data(), power)) continue;
      rows.push_back(i);
      EXPECT_EQ(power, want * (format.low ? 0x1p20F : 1.0F)) << first + i;
    }
    for (const uint32_t i : rows) expect_same_numbers(tiles, numbers, packed, codes, i);
    count += rows.size();
  }
  return count;
}

size_t rows_packed(const WeightParts& whole) {
  return rows_packed(whole, tile_format(whole.parts()));
}

// Scales that are float16 numbers: all rows, or none whose scales are too far apart.
TEST(PackedTiles, GiveTheNumbersOfShortScales) {
  Rng rng(15);
  OwnedTensor w = random_tensor(ElementType::kQ4_0, kOutputs, kInputs, rng);
  // Scales between 2^-8 and 2^-7, either sign; a group of zeros; one row's far from the others.
  const size_t block_bytes = w.bytes.size() / (kOutputs * kInputs / 32);
  const auto set_scale = [&](size_t row, size_t group, uint16_t half) {
    std::memcpy(w.bytes.data() + (row * (kInputs / 32) + group) * block_bytes, &half, sizeof half);
  };
  for (size_t row = 0; row < kOutputs; ++row) {
    for (size_t group = 0; group < kInputs / 32; ++group) {
      set_scale(row, group, static_cast<uint16_t>(0x1c00 + (rng.next() & 0x83ff)));
    }
  }
  set_scale(3, 5, 0);
  const WeightView view{TensorView{ElementType::kQ4_0, {kOutputs, kInputs}, w.bytes}};
  const WeightParts whole = *WeightParts::of({&view, 1});
  const std::vector<TileFormat> formats = tile_formats({&view, 1});
  ASSERT_EQ(formats.size(), 3U);
  EXPECT_TRUE(formats[0].short_scales && formats[0].low);
  EXPECT_TRUE(formats[1].short_scales && !formats[1].low);
  EXPECT_EQ(formats[0].tile_bytes(), 64U * 64 / 2 + 64 * 2 * 2);
  for (const TileFormat& format : formats) EXPECT_EQ(rows_packed(whole, format), 128U);
  set_scale(9, 7, 0x0400);  // 2^-14
  EXPECT_EQ(rows_packed(whole, formats[0]), 127U);
  EXPECT_EQ(rows_packed(whole, formats[1]), 128U);
  // Formats with minimums or tables have none.
  for (const ElementType type : {ElementType::kQ4_1, ElementType::kIQ4_NL, ElementType::kQ8_0}) {
    const OwnedTensor other = random_tensor(type, kOutputs, kInputs, rng);
    const WeightView other_view = other.view;
    EXPECT_EQ(tile_formats({&other_view, 1}).size(), 1U);
  }
}

TEST(PackedTiles, GiveTheNumbersOfEveryQuantizedType) {
  Rng rng(11);
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    const OwnedTensor w = random_tensor(type, kOutputs, kInputs, rng);
    const WeightView view = w.view;
    const TileFormat format = tile_format({&view, 1});
    EXPECT_EQ(format.bits < 16, group_format(view).has_value());
    if (format.bits == 16) continue;
    const WeightParts whole = *WeightParts::of({&view, 1});
    EXPECT_EQ(rows_packed(whole), 128U);
    // Whatever bytes there are: a row has all of its numbers or is not packed.
    const OwnedTensor any = random_tensor(type, kOutputs, kInputs, rng, /*wild=*/true);
    const WeightView any_view = any.view;
    rows_packed(*WeightParts::of({&any_view, 1}));
  }
}

// Five blocks a segment: the last chunk has fewer than the others.
TEST(PackedTiles, GiveTheNumbersOfUnevenSegments) {
  Rng rng(16);
  for (const ElementType type : {ElementType::kQ4_0, ElementType::kQ8_0}) {
    const OwnedTensor w = random_tensor(type, kOutputs, 576, rng);
    const WeightView view = w.view;
    for (const TileFormat& format : tile_formats({&view, 1})) {
      const size_t rows = rows_packed(*WeightParts::of({&view, 1}), format);
      EXPECT_TRUE(rows == 128 || format.low) << rows;
    }
  }
}

TEST(PackedTiles, GiveTheNumbersOfAffineGroups) {
  Rng rng(12);
  for (const uint32_t bits : {4U, 8U}) {
    for (const ElementType side : {ElementType::kF16, ElementType::kBF16, ElementType::kF32}) {
      SCOPED_TRACE(bits);
      const OwnedAffine affine = random_affine({bits, 64}, side, kOutputs, kInputs, rng);
      const WeightView view = affine.view;
      EXPECT_EQ(rows_packed(*WeightParts::of({&view, 1})), 128U);
    }
  }
}

// Queries, keys and values of one file may differ in type: one format has to hold them all.
TEST(PackedTiles, HaveOneFormatForPartsOfSeveralTypes) {
  Rng rng(13);
  const OwnedTensor a = random_tensor(ElementType::kQ4_K, 64, kInputs, rng);
  const OwnedTensor b = random_tensor(ElementType::kQ6_K, 40, kInputs, rng);
  const OwnedTensor c = random_tensor(ElementType::kQ4_0, 3, kInputs, rng);
  const OwnedTensor d = random_tensor(ElementType::kF16, 3, kInputs, rng);
  const std::vector<WeightView> quantized = {a.view, b.view, c.view}, mixed = {a.view, d.view};
  const TileFormat format = tile_format(quantized);
  EXPECT_EQ(format.bits, 8U);
  EXPECT_TRUE(format.halves);
  EXPECT_TRUE(format.has_minimum);
  EXPECT_EQ(rows_packed(*WeightParts::of(quantized)), 128U);
  EXPECT_EQ(tile_format(mixed).bits, 16U);
}

// What a budget counts is what is kept: parts of several types together, not each as if alone.
TEST(PackedTiles, OfSeveralTypesAreCountedAsTheyAreKept) {
  const auto view = [](ElementType type, uint64_t rows) {
    return WeightView(TensorView{type, {rows, kInputs}, {}});
  };
  const std::vector<std::vector<WeightView>> matrices = {
      {view(ElementType::kQ4_0, 67)},
      {view(ElementType::kQ4_K, 64), view(ElementType::kQ4_K, 40), view(ElementType::kQ6_K, 40)},
      {view(ElementType::kQ4_K, 512), view(ElementType::kBF16, 8)},
      {view(ElementType::kF16, 100000)}};
  for (const std::vector<WeightView>& parts : matrices) {
    size_t outputs = 0;
    uint64_t alone = 0;
    for (const WeightView& part : parts) {
      outputs += rows_of(part);
      alone += tiled_bytes({&part, 1});
    }
    EXPECT_EQ(tiled_bytes(parts), F16Tiles::of(outputs, kInputs, tile_format(parts)).bytes());
    if (parts.size() > 1) {
      EXPECT_GT(tiled_bytes(parts), alone * 5 / 4);
    }
  }
  EXPECT_EQ(tiled_bytes({}), 0U);
}

TEST(PackedTiles, TakeTheBytesOfTheirCodesAndScales) {
  Rng rng(14);
  const auto bytes = [&](ElementType type) {
    const OwnedTensor w = random_tensor(type, 64, 256, rng);
    const WeightView view = w.view;
    return tile_format({&view, 1}).tile_bytes();
  };
  EXPECT_EQ(bytes(ElementType::kQ4_0), 64U * 64 / 2 + 64 * 2 * 4);
  EXPECT_EQ(bytes(ElementType::kQ4_K), 64U * 64 / 2 + 2 * 64 * 2 * 4);
  EXPECT_EQ(bytes(ElementType::kQ8_0), 64U * 64 + 64 * 2 * 4);
  EXPECT_EQ(bytes(ElementType::kQ6_K), 64U * 64 + 64 * 4 * 4);
  EXPECT_EQ(bytes(ElementType::kBF16), kTileBytes);
}

}  // namespace
}  // namespace skein
