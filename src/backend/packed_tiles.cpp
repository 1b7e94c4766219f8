#include "backend/packed_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace skein {
namespace {

constexpr uint32_t kGroupInputs = arithmetic::kGroup;
constexpr uint32_t kGroupsOfTile = kTileInputs / kGroupInputs;
constexpr uint32_t kPieceBytes = 16;
constexpr int32_t kStripOffset = 8;  // what kernels take from a code

// Where a group of a block lies among those of all its outputs.
size_t place_of_group(uint32_t row, uint32_t group) {
  return size_t{row} * kGroupsOfTile + group;
}

// Where the code of an input of an output lies in a strip, and its scale. Two codes of an output
// are a byte.
struct PlaceInStrip {
  size_t byte, scale;
  uint32_t shift;

  PlaceInStrip(uint32_t row, uint32_t k)
      : byte(k / kTileInputs * 512 + (row % 8 * 4 + k % 8 / 2) * 16 + k % kTileInputs / 16 * 4 +
             k % 2 * 2 + row / 8),
        scale(kStripCodes + (row % 8 * 8 + k / kGroupInputs) * 4 + row / 8 * 2),
        shift(k % 16 / 8 * 4) {}
};

// The strip of an output.
template <class Byte>
Byte* strip_of(Byte* block, uint32_t row) {
  return block + size_t{row / kStripRows} * kStripBytes;
}

// How often a number of the definition is as large as the one that is made of codes.
constexpr float kLow = 0x1p-20F;
// Codes as they are, in the low half of a byte, are multiples of 2^-24.
constexpr float kLowCode = 0x1p-24F;

float float_of_half(uint16_t bits) {
  const auto exponent = static_cast<int32_t>(bits >> 10 & 31);
  const auto fraction = static_cast<float>(bits & 0x3ff);
  const float magnitude = exponent == 0
                              ? fraction * 0x1p-24F
                              : (fraction + 0x1p10F) * arithmetic::power_of_two(exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

// A scale as a strip has it. False: float16 has no such number, or the numbers it makes are not all
// normal.
bool put_strip_scale(std::byte* at, const TileFormat& format, float scale) {
  const float stored = format.low ? scale * kLow / kLowCode : scale;
  const uint16_t half = arithmetic::round_to_f16(stored);
  std::memcpy(at, &half, sizeof half);
  if ((half & 0x7c00) == 0x7c00 || float_of_half(half) != stored) return false;
  constexpr float kSmallest = 0x1p-14F;
  return !format.low || scale == 0 || std::abs(scale * kLow) >= kSmallest;
}

void put_codes(std::byte* block, const TileFormat& format, size_t place, const uint8_t* codes) {
  if (format.bits == 4) {
    for (size_t i = 0; i < kPieceBytes; ++i) {
      block[place * kPieceBytes + i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    return;
  }
  constexpr size_t kAfter = size_t{kTileRows} * kGroupsOfTile * kPieceBytes;
  std::memcpy(block + place * kPieceBytes, codes, kPieceBytes);
  std::memcpy(block + kAfter + place * kPieceBytes, codes + kPieceBytes, kPieceBytes);
}

uint8_t code_in_tile(const std::byte* block, const TileFormat& format, size_t place, uint32_t k) {
  if (format.bits == 4) {
    const auto pair = static_cast<uint8_t>(block[place * kPieceBytes + k / 2]);
    return static_cast<uint8_t>(pair >> (k % 2 * 4) & 0xf);
  }
  constexpr size_t kAfter = size_t{kTileRows} * kGroupsOfTile * kPieceBytes;
  return static_cast<uint8_t>(
      block[k / kPieceBytes * kAfter + place * kPieceBytes + k % kPieceBytes]);
}

float float_at(const std::byte* scales, size_t index) {
  float value = 0;
  std::memcpy(&value, scales + index * sizeof(float), sizeof(float));
  return value;
}

struct ValueRange {
  int32_t low, high;
};

ValueRange range_of_values(const GroupFormat& format) {
  if (format.table != nullptr) return {-128, 127};
  return {-format.offset, (1 << format.bits) - 1 - format.offset};
}

bool are_equal_numbers(uint16_t a, uint16_t b) {
  return a == b || ((a | b) & 0x7fffU) == 0;
}

}  // namespace

TileFormat tile_format(std::span<const WeightView> parts) {
  TileFormat made;
  ValueRange all{INT32_MAX, INT32_MIN};
  const int8_t* table = nullptr;
  bool same_table = true;
  for (const WeightView& part : parts) {
    const auto format = group_format(part);
    if (!format) return {};
    const ValueRange own = range_of_values(*format);
    all = {std::min(all.low, own.low), std::max(all.high, own.high)};
    made.halves = made.halves || format->halves;
    made.has_minimum = made.has_minimum || format->has_minimum;
    same_table =
        same_table && format->table != nullptr && (table == nullptr || table == format->table);
    table = format->table;
  }
  if (parts.empty() || all.high - all.low > 255) return {};
  if (same_table) {
    made.has_table = true;
    std::copy_n(table, std::size(made.table), made.table);
  }
  made.bits = same_table || all.high - all.low <= 15 ? 4 : 8;
  made.offset = same_table ? 0 : -all.low;
  return made;
}

std::vector<TileFormat> tile_formats(std::span<const WeightView> parts, const F16Tiles& shape) {
  const TileFormat format = tile_format(parts);
  std::vector<TileFormat> formats;
  if (format.bits == 4 && !format.has_table && !format.has_minimum && !format.halves &&
      format.offset == kStripOffset && shape.segment_blocks % (kStripInputs / kTileInputs) == 0) {
    for (const bool low : {true, false}) {
      formats.push_back(format);
      formats.back().strips = true;
      formats.back().low = low;
    }
  }
  formats.push_back(format);
  return formats;
}

uint16_t number_in_tile(const std::byte* block, const TileFormat& format, uint32_t row,
                        uint32_t k) {
  if (format.strips) {
    const std::byte* const strip = strip_of(block, row);
    const PlaceInStrip place(row % kStripRows, k);
    const int32_t code = static_cast<uint8_t>(strip[place.byte]) >> place.shift & 0xf;
    uint16_t half = 0;
    std::memcpy(&half, strip + place.scale, sizeof half);
    const float scale = float_of_half(half) * (format.low ? kLowCode / kLow : 1.0F);
    return arithmetic::round_to_f16(static_cast<float>(code - format.offset) * scale);
  }
  const size_t place = place_of_group(row, k / kGroupInputs);
  const uint8_t code = code_in_tile(block, format, place, k % kGroupInputs);
  const auto value =
      static_cast<float>(format.has_table ? format.table[code] : int32_t{code} - format.offset);
  const size_t index = format.halves ? 2 * place + k % kGroupInputs / 16 : place;
  const std::byte* const scales = block + format.code_bytes();
  const float scale = float_at(scales, index);
  const float product =
      format.has_minimum
          ? arithmetic::fma(value, scale, float_at(scales + format.scale_bytes(), index))
          : value * scale;
  return arithmetic::round_to_f16(product);
}

uint64_t tiled_bytes(std::span<const WeightView> parts) {
  if (parts.empty()) return 0;
  size_t outputs = 0;
  for (const WeightView& part : parts) outputs += rows_of(part);
  return F16Tiles::of(outputs, columns_of(parts[0]), tile_format(parts)).bytes();
}

namespace {

// A row's groups, and the numbers that they have to give.
struct PackedRow {
  std::vector<WeightGroup> groups;
  std::vector<uint16_t> numbers;
  GroupFormat format;
  int32_t exponent = 0;
  size_t inputs = 0;  // 0: there is no such row

  PackedRow(const WeightParts& whole, size_t output, const F16Tiles& tiles)
      : groups(size_t{tiles.input_blocks()} * kGroupsOfTile),
        numbers(size_t{tiles.input_blocks()} * kTileInputs) {
    if (output >= whole.outputs()) return;
    inputs = whole.inputs();
    const size_t part = whole.part_of(output);
    format = *group_format(whole.parts()[part]);
    read_groups(whole.parts()[part], output - whole.first_row(part),
                std::span(groups).first(inputs / kGroupInputs));
    std::vector<float> weights(inputs);
    whole.dequantize_row(output, weights);
    exponent = arithmetic::round_row_to_f16(weights.data(), inputs, numbers.data());
  }
  bool has(uint32_t group) const { return size_t{group} * kGroupInputs < inputs; }
  // What a tile has for the code of an input.
  uint8_t code(const TileFormat& tile, uint32_t group, uint32_t i) const {
    if (!has(group)) return tile.strips ? static_cast<uint8_t>(tile.offset) : uint8_t{0};
    const uint8_t own = groups[group].code[i];
    return tile.has_table ? own : static_cast<uint8_t>(format.value(own) + tile.offset);
  }
  float scale(uint32_t group, uint32_t half) const {
    return has(group) ? groups[group].exact_scale[half] * arithmetic::power_of_two(exponent) : 0;
  }
  float minimum(uint32_t group, uint32_t half) const {
    return has(group) ? groups[group].exact_minimum[half] * arithmetic::power_of_two(exponent) : 0;
  }
};

bool put_in_strips(const PackedRow& from, const TileFormat& format, uint32_t row,
                   std::byte* blocks) {
  bool all = true;
  for (uint32_t g = 0; g < from.groups.size(); ++g) {
    const uint32_t first = g * kGroupInputs % kStripInputs;
    std::byte* const block = blocks + size_t{g * kGroupInputs / kStripInputs} *
                                          (size_t{kTileRows / kStripRows} * kStripBytes);
    std::byte* const strip = strip_of(block, row);
    for (uint32_t i = 0; i < kGroupInputs; ++i) {
      const PlaceInStrip place(row % kStripRows, first + i);
      const auto code = static_cast<std::byte>(from.code(format, g, i) << place.shift);
      // The first of a byte's two codes comes first.
      strip[place.byte] = place.shift == 0 ? code : strip[place.byte] | code;
    }
    const PlaceInStrip place(row % kStripRows, first);
    all = put_strip_scale(strip + place.scale, format, from.scale(g, 0)) && all;
  }
  return all;
}

void put_in_blocks(const PackedRow& from, const TileFormat& format, uint32_t row,
                   std::byte* blocks) {
  for (uint32_t g = 0; g < from.groups.size(); ++g) {
    std::byte* const block = blocks + size_t{g / kGroupsOfTile} * format.tile_bytes();
    const size_t place = place_of_group(row, g % kGroupsOfTile);
    uint8_t codes[kGroupInputs] = {};
    for (uint32_t i = 0; i < kGroupInputs; ++i) codes[i] = from.code(format, g, i);
    put_codes(block, format, place, codes);
    const uint32_t count = format.halves ? 2 : 1;
    for (uint32_t half = 0; half < count; ++half) {
      const uint32_t own = from.format.halves ? half : 0;
      const float scale = from.scale(g, own), minimum = from.minimum(g, own);
      std::byte* const at = block + format.code_bytes() + (place * count + half) * sizeof(float);
      std::memcpy(at, &scale, sizeof scale);
      if (format.has_minimum) std::memcpy(at + format.scale_bytes(), &minimum, sizeof minimum);
    }
  }
}

}  // namespace

bool pack_quantized_row(const WeightParts& whole, size_t output, const F16Tiles& tiles,
                        std::byte* blocks, float& power) {
  const TileFormat& format = tiles.format;
  const uint32_t row = output % kTileRows;
  const PackedRow from(whole, output, tiles);
  constexpr int32_t kLowExponent = 20, kMost = 126;
  const int32_t exponent = from.exponent - (format.low ? kLowExponent : 0);
  if (exponent < -kMost) return false;
  power = arithmetic::power_of_two(-exponent);
  if (format.strips) {
    if (!put_in_strips(from, format, row, blocks)) return false;
  } else {
    put_in_blocks(from, format, row, blocks);
  }
  const uint32_t inputs = format.strips ? kStripInputs : kTileInputs;
  const size_t bytes = size_t{format.tile_bytes()} * (inputs / kTileInputs);
  for (uint32_t k = 0; k < from.numbers.size(); ++k) {
    const std::byte* const block = blocks + k / inputs * bytes;
    if (!are_equal_numbers(number_in_tile(block, format, row, k % inputs), from.numbers[k])) {
      return false;
    }
  }
  return true;
}

}  // namespace skein
