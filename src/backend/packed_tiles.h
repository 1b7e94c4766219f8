// How devices keep quantized matrices for F16 products: codes and scales, of which the numbers of
// f16_tiles.h are made again where they are multiplied, bit for bit.
//
// The blocks of 64 outputs have strips of 16. A few blocks of inputs of a segment are a chunk, in
// which the four strips follow each other, and a strip has for every 64 inputs its codes, then
// scales, then minimums where the format has them, in the order in which a warp's threads make the
// fragments of a tensor core of them (PlaceInStrip): thread t has outputs t / 4 and + 8, and of
// every 16 inputs t % 4 * 2 and + 1, and the two that are 8 further. Scales and minimums are
// float32, times the power of two that a row is scaled by.
//
// Formats of 4 bits without minimums and tables have scales in float16 where these are exact. Where
// all of a matrix's are near enough to their row's largest number, numbers are made 2^-20 times as
// large (TileFormat::low): all of them are normal then, so that sums have the same bits, and codes
// are float16 numbers as they are, subnormal ones.
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

// The formats to try in turn, for a matrix of these parts; the last is tile_format's.
std::vector<TileFormat> tile_formats(std::span<const WeightView> parts);

// What a matrix of these parts takes, by their types and shapes. One whose numbers do not all come
// out of its codes again takes more: it is kept in 16 bits.
uint64_t tiled_bytes(std::span<const WeightView> parts);

// Packs one of 64 outputs as pack_f16_row does. False: not all numbers would come out of it again.
// `power` becomes the power of two that its sums are multiplied with.
bool pack_quantized_row(const WeightParts& whole, size_t output, const F16Tiles& tiles,
                        std::byte* blocks, float& power);

// The number of an input of one of 64 outputs, out of their blocks: what the device makes of codes
// and scales, but for TileFormat::low.
uint16_t number_in_strips(const std::byte* blocks, const F16Tiles& tiles, uint32_t row, uint32_t k);

}  // namespace skein
