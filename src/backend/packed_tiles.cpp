#include "backend/packed_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace skein {
namespace {

constexpr uint32_t kGroupInputs = arithmetic::kGroup;
constexpr uint32_t kGroupsOfTile = kTileInputs / kGroupInputs;
constexpr int32_t kShortOffset = 8;  // what kernels take from a code with a short scale

// Where the code of an input of one of 64 outputs lies in their blocks, its scale and its minimum.
// A thread has 16 bytes of codes of 4 bits for 64 inputs, or 2 times 16 of 8 bits; of 4 bits the
// inputs that are 8 further are the high halves of its bytes.
struct PlaceInStrip {
  size_t code, scale, minimum;
  uint32_t shift;

  PlaceInStrip(const F16Tiles& tiles, uint32_t row, uint32_t k) {
    const TileFormat& format = tiles.format;
    const size_t first = tiles.offset_in_strips(row / kStripRows, k / kTileInputs);
    const uint32_t thread = row % 8 * 4 + k % 8 / 2, pair = row / 8 % 2;
    const bool four = format.bits == 4;
    const uint32_t word = four ? k % kTileInputs / 16 : k % kTileInputs / 32 * 128 + k % 32 / 8;
    const uint32_t in_strip = thread * 16 + word * 4 + k % 2 * 2 + pair;
    code = first + in_strip;
    shift = four ? k % 16 / 8 * 4 : 0;
    const uint32_t inputs = format.halves ? 16 : 32;
    const uint32_t group = row % 8 * (kTileInputs / inputs) + k % kTileInputs / inputs;
    scale = first + format.code_bytes() / kStripsOfTile +
            (size_t{group} * 2 + pair) * (format.short_scales ? 2 : 4);
    minimum = scale + format.scale_bytes() / kStripsOfTile;
  }
};

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

// A short scale. False: float16 has no such number, or the numbers it makes are not all
// normal.
bool put_short_scale(std::byte* at, const TileFormat& format, float scale) {
  const float stored = format.low ? scale * kLow / kLowCode : scale;
  const uint16_t half = arithmetic::round_to_f16(stored);
  std::memcpy(at, &half, sizeof half);
  if ((half & 0x7c00) == 0x7c00 || float_of_half(half) != stored) return false;
  constexpr float kSmallest = 0x1p-14F;
  return !format.low || scale == 0 || std::abs(scale * kLow) >= kSmallest;
}

float float_at(const std::byte* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
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

std::vector<TileFormat> tile_formats(std::span<const WeightView> parts) {
  const TileFormat format = tile_format(parts);
  std::vector<TileFormat> formats;
  if (format.bits == 4 && !format.has_table && !format.has_minimum && !format.halves &&
      format.offset == kShortOffset) {
    for (const bool low : {true, false}) {
      formats.push_back(format);
      formats.back().short_scales = true;
      formats.back().low = low;
    }
  }
  formats.push_back(format);
  return formats;
}

uint16_t number_in_strips(const std::byte* blocks, const F16Tiles& tiles, uint32_t row,
                          uint32_t k) {
  const TileFormat& format = tiles.format;
  const PlaceInStrip place(tiles, row, k);
  const auto byte = static_cast<uint8_t>(blocks[place.code]);
  const uint8_t code = format.bits == 4 ? byte >> place.shift & 0xf : byte;
  const auto value =
      static_cast<float>(format.has_table ? format.table[code] : int32_t{code} - format.offset);
  if (format.short_scales) {
    uint16_t half = 0;
    std::memcpy(&half, blocks + place.scale, sizeof half);
    const float scale = float_of_half(half) * (format.low ? kLowCode / kLow : 1.0F);
    return arithmetic::round_to_f16(value * scale);
  }
  const float minimum = format.has_minimum ? float_at(blocks + place.minimum) : 0.0F;
  return arithmetic::round_to_f16(arithmetic::fma(value, float_at(blocks + place.scale), minimum));
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
    if (!has(group)) return 0;
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

bool put_in_strips(const PackedRow& from, const F16Tiles& tiles, uint32_t row, std::byte* blocks) {
  const TileFormat& format = tiles.format;
  bool all = true;
  for (uint32_t k = 0; k < tiles.input_blocks() * kTileInputs; ++k) {
    const uint32_t group = k / kGroupInputs, i = k % kGroupInputs;
    const PlaceInStrip place(tiles, row, k);
    const auto code = static_cast<std::byte>(from.code(format, group, i) << place.shift);
    // The first of a byte's two codes comes first.
    blocks[place.code] = place.shift == 0 ? code : blocks[place.code] | code;
    if (i % (format.halves ? 16 : 32) != 0) continue;
    const uint32_t half = from.format.halves ? i / 16 : 0;
    const float scale = from.scale(group, half), minimum = from.minimum(group, half);
    if (format.short_scales) {
      all = put_short_scale(blocks + place.scale, format, scale) && all;
      continue;
    }
    std::memcpy(blocks + place.scale, &scale, sizeof scale);
    if (format.has_minimum) std::memcpy(blocks + place.minimum, &minimum, sizeof minimum);
  }
  return all;
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
  if (!put_in_strips(from, tiles, row, blocks)) return false;
  for (uint32_t k = 0; k < from.numbers.size(); ++k) {
    if (!are_equal_numbers(number_in_strips(blocks, tiles, row, k), from.numbers[k])) return false;
  }
  return true;
}

}  // namespace skein
