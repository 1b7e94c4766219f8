// TileProducts: products with matrices of float16 tiles, and the memory that they need on the way.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/products.h"
#include "backend/weight_parts.h"
#include "base/compute_pool.h"

namespace skein::cuda {

class TileProducts {
 public:
  // For the current device, which is a Hopper with `processors`. All work goes into `stream`. With
  // a seed matrices are filled from it, whatever their views hold.
  TileProducts(uint32_t processors, cudaStream_t stream, std::optional<uint64_t> seed);

  // As Backend::make_matrix; the pool rounds and packs.
  Result<std::unique_ptr<Matrix>> make_matrix(const WeightParts& whole, const Consumed& consumed,
                                              ComputePool& pool);

  // As Backend::linear and expert_linear; `in` says nothing of an addition before an activation.
  // Where what linear() returns has planes, `out` is what they add up to: they stay until the next
  // product, and so does their place.
  SegmentSums linear(const DeviceInput& in, const Matrix& matrix, const float* bias,
                     DeviceRows out);
  void expert_linear(DeviceRows x, std::span<const std::unique_ptr<Matrix>> experts,
                     const float* biases, const DeviceRoutes& routes, DeviceRows out);

  // How often memory of it has moved.
  uint64_t moves() const {
    return tiles_.moves() + scales_.moves() + sums_.moves() + routes_.moves() + wide_.moves();
  }

 private:
  void multiply_some(std::span<const std::unique_ptr<Matrix>> experts, size_t first,
                     const float* biases, const ExpertTiles& tiles, const ProductScratch& scratch,
                     DeviceRows out);
  DeviceTiles numbers_for(const DeviceTiles& matrix, uint32_t rows);
  ProductScratch scratch_for(const DeviceTiles& matrix, uint32_t rows, size_t sums);
  Result<std::unique_ptr<Matrix>> make_tiles(const WeightParts& whole, const F16Tiles& tiles,
                                             const Consumed& consumed, ComputePool& pool);
  bool upload_blocks(const WeightParts& whole, const F16Tiles& tiles, uint32_t first,
                     uint32_t count, std::span<float> scales, std::byte* to, ComputePool& pool);
  void copy_up(std::byte* to, const void* from, size_t bytes);

  const uint32_t processors_;
  const cudaStream_t stream_;
  std::optional<uint64_t> seed_;  // of the matrix that was filled last
  Scratch tiles_, scales_, sums_, routes_;
  Scratch wide_;  // numbers of a matrix of codes, for many rows
  Pinned staging_;
};

}  // namespace skein::cuda
