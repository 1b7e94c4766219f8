// The layout in which devices keep a matrix for F16 products, and how rows of a file get into it.
//
// Blocks of 64 outputs and 64 inputs, 8 KiB each, those of the same outputs side by side. Inputs go
// on with zeros to the end of the last segment, outputs to the end of the last block. In a block a
// row is 128 bytes, whose pieces of 16 change places by the number of the row: a tensor core reads
// eight rows at once, and no two of them from one bank. After all blocks, for each output, the
// power of two that its sums are multiplied with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/f16_products.h"

#if defined(__CUDACC__)
#define SKEIN_HOST_DEVICE __host__ __device__
#else
#define SKEIN_HOST_DEVICE
#endif

namespace skein {

inline constexpr uint32_t kTileRows = 64;
inline constexpr uint32_t kTileInputs = arithmetic::kF16Block;
inline constexpr uint32_t kTileBytes = kTileRows * kTileInputs * uint32_t{sizeof(uint16_t)};

// The byte offset of a number in a block, or in rows of activations that begin at a multiple of 8.
SKEIN_HOST_DEVICE constexpr uint32_t offset_in_tile(uint32_t row, uint32_t k) {
  return row * (kTileInputs * 2) + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2;
}

// Codes (packed_tiles.h) lie in strips of so many outputs.
inline constexpr uint32_t kStripRows = 16, kStripsOfTile = kTileRows / kStripRows;

// What a block holds of its numbers: themselves, or codes and scales (packed_tiles.h).
struct TileFormat {
  uint32_t bits = 16;         // of a code: 4 or 8; 16: numbers
  int32_t offset = 0;         // a value is the code less this, or
  bool has_table = false;     // what a table of 16 says
  bool halves = false;        // scales are of 16 inputs each; else of 32
  bool has_minimum = false;   // numbers are value * scale + minimum
  bool short_scales = false;  // they are float16; else float32
  bool low = false;  // of short scales: numbers are made 2^-20 times as large, which is faster
  int8_t table[16] = {};

  bool operator==(const TileFormat&) const = default;
  SKEIN_HOST_DEVICE uint32_t code_bytes() const { return kTileRows * kTileInputs * bits / 8; }
  // Minimums take as many.
  SKEIN_HOST_DEVICE uint32_t scale_bytes() const {
    const uint32_t groups = kTileRows * (kTileInputs / (halves ? 16 : 32));
    return bits == 16 ? 0 : groups * (short_scales ? 2 : 4);
  }
  SKEIN_HOST_DEVICE uint32_t tile_bytes() const {
    return code_bytes() + scale_bytes() * (has_minimum ? 2 : 1);
  }
  // So many blocks of inputs are a chunk of strips.
  SKEIN_HOST_DEVICE uint32_t chunk() const { return short_scales ? 4 : 2; }
};

struct F16Tiles {
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  uint32_t segments = 1;
  uint32_t segment_blocks = 1;  // of inputs, in each segment
  TileFormat format = {};

  static F16Tiles of(size_t outputs, size_t inputs, const TileFormat& format = {});

  SKEIN_HOST_DEVICE uint32_t row_blocks() const { return (outputs + kTileRows - 1) / kTileRows; }
  SKEIN_HOST_DEVICE uint32_t input_blocks() const { return segments * segment_blocks; }
  // From the blocks of 64 outputs to those of the next.
  SKEIN_HOST_DEVICE size_t row_block_bytes() const {
    return size_t{input_blocks()} * format.tile_bytes();
  }
  SKEIN_HOST_DEVICE size_t block_bytes() const { return row_blocks() * row_block_bytes(); }
  // Where a strip of 64 outputs has the codes of a block of inputs.
  SKEIN_HOST_DEVICE size_t offset_in_strips(uint32_t strip, uint32_t block) const {
    const uint32_t of_segment = block % segment_blocks, in_chunk = of_segment % format.chunk();
    const uint32_t left = segment_blocks - (of_segment - in_chunk);
    const uint32_t chunk = left < format.chunk() ? left : format.chunk();
    return (size_t{block - in_chunk} * kStripsOfTile + size_t{strip} * chunk + in_chunk) *
           (format.tile_bytes() / kStripsOfTile);
  }
  size_t bytes() const { return block_bytes() + size_t{row_blocks()} * kTileRows * sizeof(float); }
};

// Packs one of 64 outputs, the one at `row`, into their blocks, the padding included. Returns the
// power of two that its sums are multiplied with. Thread-safe for different rows.
float pack_f16_row(std::span<const float> weights, uint32_t row, const F16Tiles& tiles,
                   std::byte* blocks);

}  // namespace skein
