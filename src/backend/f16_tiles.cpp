#include "backend/f16_tiles.h"

#include <cstring>
#include <vector>

namespace skein {

F16Tiles F16Tiles::of(size_t outputs, size_t inputs, const TileFormat& format) {
  const arithmetic::F16Segments segments = arithmetic::f16_segments(outputs, inputs);
  return {static_cast<uint32_t>(outputs), static_cast<uint32_t>(inputs), segments.count,
          segments.inputs / kTileInputs, format};
}

float pack_f16_row(std::span<const float> weights, uint32_t row, const F16Tiles& tiles,
                   std::byte* blocks) {
  constexpr uint32_t kPiece = 8;  // numbers that stay side by side
  std::vector<uint16_t> rounded(size_t{tiles.input_blocks()} * kTileInputs);
  const int32_t exponent =
      arithmetic::round_row_to_f16(weights.data(), weights.size(), rounded.data());
  for (uint32_t block = 0; block < tiles.input_blocks(); ++block) {
    for (uint32_t k = 0; k < kTileInputs; k += kPiece) {
      std::memcpy(blocks + size_t{block} * kTileBytes + offset_in_tile(row, k),
                  &rounded[size_t{block} * kTileInputs + k], kPiece * sizeof(uint16_t));
    }
  }
  return arithmetic::power_of_two(-exponent);
}

}  // namespace skein
