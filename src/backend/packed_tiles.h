// How devices keep quantized matrices for F16 products: codes and scales, of which the numbers of
// f16_tiles.h are made again where they are multiplied, bit for bit.
//
// A block is of 64 outputs and 64 inputs as there. It has codes, then scales, then minimums where
// the format has them. What 32 inputs of an output have lies together, output after output:
// their codes 16 bytes (of 4 bits: inputs 2i and 2i + 1 in byte i, the first one in the low half)
// or 2 times 16 bytes (of 8 bits, the second halves of all after the first), and their scale, or
// two. Scales and minimums are float32, times the power of two that a row is scaled by.
//
// Formats of 4 bits without minimums and tables can lie in strips instead, which are multiplied
// where they lie: a block is of 64 outputs and 256 inputs, four strips of 16 outputs. A strip has
// its codes, 512 bytes for 64 inputs each, 16 bytes for each thread of a warp in the order of the
// tensor core's fragments, then its scales in float16 (place_in_strip). Where all scales of a
// matrix are near enough to their row's largest number, numbers are made 2^-20 times as large
// (TileFormat::low): all of them are normal then, so that sums have the same bits, and codes are
// float16 numbers as they are, subnormal ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/f16_tiles.h"
#include "backend/weight_groups.h"
#include "backend/weight_parts.h"

namespace skein {

// In which a matrix can be packed, by the types of its parts; of 16 bits where one of them is not
// quantized or they have too little in common.
TileFormat tile_format(std::span<const WeightView> parts);

// The formats to try in turn, for a matrix of these parts and segments; the last is tile_format's.
std::vector<TileFormat> tile_formats(std::span<const WeightView> parts, const F16Tiles& shape);

// What a matrix of these parts takes, by their types and shapes. One whose numbers do not all come
// out of its codes again takes more: it is kept in 16 bits.
uint64_t tiled_bytes(std::span<const WeightView> parts);

// Packs one of 64 outputs as pack_f16_row does. False: not all numbers would come out of it again.
// `power` becomes the power of two that its sums are multiplied with.
bool pack_quantized_row(const WeightParts& whole, size_t output, const F16Tiles& tiles,
                        std::byte* blocks, float& power);

// One of the numbers of a block, of 256 inputs where it has strips: what the device makes of codes
// and scales, but for TileFormat::low.
uint16_t number_in_tile(const std::byte* block, const TileFormat& format, uint32_t row, uint32_t k);

}  // namespace skein
