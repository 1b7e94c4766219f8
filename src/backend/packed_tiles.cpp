#include "backend/packed_tiles.h"

#include <algorithm>
#include <cstring>

namespace skein {
namespace {

constexpr uint32_t kGroupInputs = arithmetic::kGroup;
constexpr uint32_t kGroupsOfTile = kTileInputs / kGroupInputs;
constexpr uint32_t kPieceBytes = 16;

// Where a group of a block lies among those of all its outputs.
size_t place_of_group(uint32_t row, uint32_t group) {
  return size_t{row} * kGroupsOfTile + group;
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

uint16_t number_in_tile(const std::byte* block, const TileFormat& format, uint32_t row,
                        uint32_t k) {
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

bool pack_quantized_row(const WeightParts& whole, size_t output, const F16Tiles& tiles,
                        std::byte* blocks, float& power) {
  const TileFormat& format = tiles.format;
  const uint32_t tile_bytes = format.tile_bytes(), row = output % kTileRows;
  std::vector<WeightGroup> groups(size_t{tiles.input_blocks()} * kGroupsOfTile);
  std::vector<float> weights(whole.inputs());
  GroupFormat own;
  power = 1;
  std::vector<uint16_t> numbers(size_t{tiles.input_blocks()} * kTileInputs);
  int32_t exponent = 0;
  if (output < whole.outputs()) {
    const size_t part = whole.part_of(output);
    const size_t row_of_part = output - whole.first_row(part);
    own = *group_format(whole.parts()[part]);
    read_groups(whole.parts()[part], row_of_part,
                std::span(groups).first(whole.inputs() / kGroupInputs));
    whole.dequantize_row(output, weights);
    exponent = arithmetic::round_row_to_f16(weights.data(), weights.size(), numbers.data());
    power = arithmetic::power_of_two(-exponent);
  }
  const float up = arithmetic::power_of_two(exponent);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    std::byte* const block = blocks + size_t{g / kGroupsOfTile} * tile_bytes;
    const size_t place = place_of_group(row, g % kGroupsOfTile);
    const bool is_there = size_t{g} * kGroupInputs < whole.inputs() && output < whole.outputs();
    uint8_t codes[kGroupInputs] = {};
    for (uint32_t i = 0; i < kGroupInputs && is_there; ++i) {
      codes[i] = format.has_table
                     ? groups[g].code[i]
                     : static_cast<uint8_t>(own.value(groups[g].code[i]) + format.offset);
    }
    put_codes(block, format, place, codes);
    const uint32_t count = format.halves ? 2 : 1;
    for (uint32_t half = 0; half < count; ++half) {
      const uint32_t from = own.halves ? half : 0;
      const float scale = is_there ? groups[g].exact_scale[from] * up : 0;
      const float minimum = is_there ? groups[g].exact_minimum[from] * up : 0;
      std::byte* const at = block + format.code_bytes() + (place * count + half) * sizeof(float);
      std::memcpy(at, &scale, sizeof scale);
      if (format.has_minimum) std::memcpy(at + format.scale_bytes(), &minimum, sizeof minimum);
    }
  }
  for (uint32_t k = 0; k < numbers.size(); ++k) {
    const std::byte* const block = blocks + size_t{k / kTileInputs} * tile_bytes;
    if (!are_equal_numbers(number_in_tile(block, format, row, k % kTileInputs), numbers[k])) {
      return false;
    }
  }
  return true;
}

}  // namespace skein
