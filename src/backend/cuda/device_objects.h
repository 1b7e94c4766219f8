// What a model keeps on the device: matrices, ropes, routes and caches.
#pragma once

#include <cstdint>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/products.h"
#include "backend/host/memory.h"

namespace skein::cuda {

// Float32, whatever the file had: for products in float32, and for tables.
class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(size_t outputs, size_t inputs, Buffer memory)
      : Matrix(outputs, inputs, memory.bytes(), /*reads_views=*/false),
        memory_(std::move(memory)) {}

  // Floats from a row to the next.
  static size_t stride(size_t inputs) { return (inputs + 15) / 16 * 16; }
  DeviceMatrix device() const {
    return {raw(memory_.floats()), static_cast<uint32_t>(outputs()),
            static_cast<uint32_t>(inputs()), stride(inputs())};
  }

 private:
  Buffer memory_;
};

inline DeviceMatrix device_matrix(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix).device();
}

// For F16 products.
class CudaTiles final : public Matrix {
 public:
  // `memory` holds what tiles.bytes() says.
  CudaTiles(const F16Tiles& tiles, Buffer memory)
      : Matrix(tiles.outputs, tiles.inputs, memory.bytes(), /*reads_views=*/false),
        memory_(std::move(memory)),
        tiles_{tiles, raw(memory_)} {}

  const DeviceTiles& device() const { return tiles_; }

 private:
  Buffer memory_;
  DeviceTiles tiles_;
};

inline const DeviceTiles& device_tiles(const Matrix& matrix) {
  return static_cast<const CudaTiles&>(matrix).device();
}

class CudaRope final : public Rope {
 public:
  CudaRope(size_t frequencies, float magnitude, Buffer memory)
      : Rope(2 * frequencies), magnitude_(magnitude), memory_(std::move(memory)) {}

  const float* frequencies() const { return raw(memory_.floats()); }
  float magnitude() const { return magnitude_; }

 private:
  float magnitude_;
  Buffer memory_;
};

inline const CudaRope& cuda_rope(const Rope& rope) {
  return static_cast<const CudaRope&>(rope);
}

class CudaRoutes final : public Routes {
 public:
  // `memory` holds an expert and a weight for each row and choice.
  CudaRoutes(size_t rows, uint32_t used, Buffer memory)
      : Routes(rows, used), memory_(std::move(memory)) {}

  DeviceRoutes device() const {
    float* const weights = raw(memory_.floats());
    return {reinterpret_cast<uint32_t*>(weights + rows() * used()), weights, used()};
  }

 private:
  Buffer memory_;
};

inline DeviceRoutes device_routes(const Routes& routes) {
  return static_cast<const CudaRoutes&>(routes).device();
}

// Block b of all layers lies together, as in host memory.
class CudaKv final : public KvCache {
 public:
  // `for_tensor_cores`: for attend_on_tensor_cores, unless it is of float32.
  CudaKv(const KvSpec& spec, bool for_tensor_cores, uint32_t blocks, uint64_t id, Buffer memory)
      : KvCache(spec, blocks, memory.bytes(), id),
        in_pairs_(is_in_pairs(spec, for_tensor_cores)),
        memory_(std::move(memory)) {}

  static bool is_in_pairs(const KvSpec& spec, bool for_tensor_cores) {
    return for_tensor_cores && spec.type != KvType::kF32;
  }
  static uint64_t block_bytes(const KvSpec& spec, bool for_tensor_cores) {
    return spec.layers * layer_bytes(spec, is_in_pairs(spec, for_tensor_cores));
  }

  DeviceKv layer(uint32_t index) const {
    SKEIN_CHECK(index < spec().layers, "layer {} of {}", index, spec().layers);
    return {raw(memory_) + index * layer_bytes(spec(), in_pairs_),
            spec().layers * layer_bytes(spec(), in_pairs_),
            half_bytes(spec(), in_pairs_),
            spec().heads,
            spec().head_dim,
            stride(spec(), in_pairs_),
            spec().type,
            in_pairs_};
  }

 private:
  static uint32_t stride(const KvSpec& spec, bool in_pairs) {
    return in_pairs ? (spec.head_dim + 15) / 16 * 16 : spec.head_dim;
  }
  static uint64_t half_bytes(const KvSpec& spec, bool in_pairs) {
    const uint64_t elements = uint64_t{kBlockTokens} * stride(spec, in_pairs);
    if (spec.type == KvType::kF32) return elements * sizeof(float);
    if (spec.type == KvType::kBf16) return elements * sizeof(uint16_t);
    return elements + kBlockTokens * sizeof(float);
  }
  static uint64_t layer_bytes(const KvSpec& spec, bool in_pairs) {
    return uint64_t{spec.heads} * 2 * half_bytes(spec, in_pairs);
  }

  bool in_pairs_;
  Buffer memory_;
};

inline DeviceKv device_kv(const KvCache& cache, uint32_t layer) {
  return static_cast<const CudaKv&>(cache).layer(layer);
}

}  // namespace skein::cuda
