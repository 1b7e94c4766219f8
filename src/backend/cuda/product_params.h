// What the kernels of products are given, and those of each kind of codes.
#pragma once

#include "backend/cuda/products.h"

namespace skein::cuda {

inline constexpr uint32_t kMostStreamed = 64;  // rows

struct ProductParams {
  DeviceTiles matrix;
  const float* bias;
  const std::byte* x;
  const float* x_scales;
  uint32_t x_rows;  // of the tiles
  uint32_t rows;
  uint32_t token_tiles;
  float* sums;  // of segments, [segment][row][output]; nullptr: `out` is written
  float* out;
  size_t out_stride;
};

struct ExpertParams : ProductParams {
  const uint32_t* routes;  // as in ExpertTiles
  const uint32_t* experts;
  ExpertBlocks table;
};

// Kernels for a kind of codes, or for numbers.
struct PackedProducts {
  cudaError_t (*set_up)();
  void (*multiply)(ProductParams params, uint32_t processors, cudaStream_t stream);
  void (*multiply_experts)(const ExpertParams& params, uint32_t tile_rows, uint32_t processors,
                           cudaStream_t stream);
};
const PackedProducts& products_of_short_scales(bool low);
const PackedProducts& products_of_4_bits(bool halves, bool has_table);
const PackedProducts& products_of_8_bits(bool halves);
const PackedProducts& products_of_numbers();

// Of few rows with codes (packed_tiles.h): set up once for the current device, and whether
// multiply_strips takes them; PackedProducts have the others.
cudaError_t set_up_strips();
bool fits_strips(const DeviceTiles& matrix, uint32_t rows, uint32_t processors);
void multiply_strips(const ProductParams& params, uint32_t processors, cudaStream_t stream);

// The same matrix of numbers, in `to`, which has room for F16Tiles::bytes() of them.
DeviceTiles widen(const DeviceTiles& matrix, std::byte* to, cudaStream_t stream);

}  // namespace skein::cuda
