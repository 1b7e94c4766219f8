// F16 products (f16_products.h) on tensor cores: rows become tiles of float16 numbers, tiles are
// multiplied, and where segments were summed apart their sums are added up, in order. How work is
// cut into blocks of threads enters no result.
//
// Weights lie as f16_tiles.h has them, and activations as [inputs / 64][rows][64], swizzled alike,
// so that one copy moves a block into shared memory as wgmma wants it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"
#include "backend/f16_tiles.h"

namespace skein::cuda {

struct AttentionWork;
struct MergeParams;

struct DeviceTiles : F16Tiles {
  const std::byte* blocks = nullptr;
};

// A product whose segments were summed apart: who reads it adds them up, in order.
struct SegmentSums {
  static constexpr uint32_t kMost = 8;  // segments
  const float* planes = nullptr;        // [segment][row][output]; nullptr: there is none
  const float* scales = nullptr;        // of outputs
  const float* row_scales = nullptr;
  const float* bias = nullptr;  // nullptr: none
  uint32_t segments = 1;
  uint32_t rows = 0;
  uint32_t outputs = 0;
};

// Rows on their way into a product, as LinearInput has them. All but x and width is for rows that
// go at once.
struct DeviceInput {
  DeviceRows x;
  const AttentionWork* attention = nullptr;  // x is yet to be made by it; neither norm nor delta
  const MergeParams* merge = nullptr;        // the same, of these spans
  DeviceRows delta{};                        // no data: none; never with an activation
  SegmentSums delta_sums{};                  // the same, not yet added up; there is a norm then
  float delta_scale = 1;
  const DeviceNorm* norm = nullptr;
  const ActivationParams* activation = nullptr;
  uint32_t width = 0;
};

// Scratch of a product: tiles and scales of `rows` rows, and sums of segments.
struct ProductScratch {
  std::byte* tiles = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  uint32_t rows = 0;
};

// Routes in the order of their experts, each expert's beginning a new tile of `tile_rows` rows.
struct ExpertTiles {
  uint32_t* routes = nullptr;   // [rows of all tiles], UINT32_MAX: none
  uint32_t* experts = nullptr;  // [tiles], UINT32_MAX: none
  uint32_t tiles = 0;
  uint32_t tile_rows = 0;

  static ExpertTiles of(uint32_t routes, uint32_t experts);
  uint32_t rows() const { return tiles * tile_rows; }
};

// Once for the current device.
cudaError_t set_up_products();

// The rows that tiles of `rows` rows have memory for, on their way into a product with the matrix.
uint32_t tiled_rows(const DeviceTiles& matrix, uint32_t rows, uint32_t processors);
// Floats that ProductScratch::sums needs.
size_t sums_of_segments(const DeviceTiles& matrix, uint32_t rows);

// Whether one kernel does all that is to be done to the rows: they are not too wide, and aligned.
bool goes_at_once(const DeviceInput& in, const DeviceTiles& matrix);
void to_tiles(const DeviceInput& in, const DeviceTiles& matrix, const ProductScratch& scratch,
              cudaStream_t stream);
// `processors` is the number that the device has. Where segments are summed apart `out` is not
// written: what is returned has planes then.
SegmentSums multiply(const DeviceTiles& matrix, const float* bias, const ProductScratch& scratch,
                     DeviceRows out, uint32_t processors, cudaStream_t stream);
void add_segments(const SegmentSums& sums, DeviceRows out, cudaStream_t stream);

void sort_routes(const DeviceRoutes& routes, uint32_t count, uint32_t experts,
                 const ExpertTiles& tiles, cudaStream_t stream);
// Row i of x goes to where `tiles` has the routes of it: as Backend::expert_linear, by experts of
// the table; `shape` is that of every expert.
void to_expert_tiles(DeviceRows x, const ExpertTiles& tiles, uint32_t rows_of_route,
                     const DeviceTiles& shape, const ProductScratch& scratch, cudaStream_t stream);
struct ExpertBlocks {
  const std::byte* blocks[ExpertTable::kMost];  // nullptr: not this one
  uint32_t first = 0;
  uint32_t count = 0;
};
void multiply_experts(const ExpertBlocks& table, const DeviceTiles& shape, const float* biases,
                      const ExpertTiles& tiles, const ProductScratch& scratch, DeviceRows out,
                      uint32_t processors, cudaStream_t stream);

}  // namespace skein::cuda
