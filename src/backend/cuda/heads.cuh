// A head of a row on its way into a paged cache: turned, rounded and stored by a warp.
#pragma once

#include "backend/cuda/launch.cuh"
#include "base/ids.h"

namespace skein::cuda {

// As attention over such a cache has its numbers.
template <KvType kType>
__device__ inline float rounded(float x) {
  if constexpr (kType == KvType::kF32) return x;
  return arithmetic::float_of_bf16(arithmetic::round_to_bf16(x));
}

// The keys or the values of one head in one block.
template <KvType kType>
struct Half {
  std::byte* data;
  uint32_t head_dim;
  uint32_t stride;

  __device__ float* scales() const {
    return reinterpret_cast<float*>(data + size_t{kBlockTokens} * stride);
  }
  __device__ float at(size_t index, uint32_t slot) const {
    if constexpr (kType == KvType::kF32) return reinterpret_cast<const float*>(data)[index];
    if constexpr (kType == KvType::kBf16) {
      return arithmetic::float_of_bf16(reinterpret_cast<const uint16_t*>(data)[index]);
    }
    const auto q = static_cast<float>(reinterpret_cast<const int8_t*>(data)[index]);
    return rounded<kType>(scales()[slot] * q);
  }
  __device__ void put(size_t index, float x, float inverse) const {
    if constexpr (kType == KvType::kF32) {
      reinterpret_cast<float*>(data)[index] = x;
    } else if constexpr (kType == KvType::kBf16) {
      reinterpret_cast<uint16_t*>(data)[index] = arithmetic::round_to_bf16(x);
    } else {
      reinterpret_cast<int8_t*>(data)[index] = arithmetic::to_int8(x, inverse);
    }
  }
  __device__ float key(uint32_t slot, uint32_t d) const {
    return at(d * kBlockTokens + slot, slot);
  }
  __device__ float value(uint32_t slot, uint32_t d) const { return at(slot * head_dim + d, slot); }
};

template <KvType kType>
__device__ inline Half<kType> keys_of(const DeviceKv& cache, uint32_t block, uint32_t head) {
  return {cache.data + block * cache.block_bytes + head * 2 * cache.half_bytes, cache.head_dim,
          cache.stride};
}
template <KvType kType>
__device__ inline Half<kType> values_of(const DeviceKv& cache, uint32_t block, uint32_t head) {
  return {keys_of<kType>(cache, block, head).data + cache.half_bytes, cache.head_dim, cache.stride};
}

// One head of a row by a warp; index(d) is where dimension d goes.
template <KvType kType, class Index>
__device__ inline void store_head(const float* from, uint32_t slot, const Half<kType>& to,
                                  uint32_t thread, const Index& index) {
  float inverse = 0;
  if constexpr (kType == KvType::kInt8) {
    const arithmetic::Int8Scale scale = arithmetic::int8_scale(from, to.head_dim);
    inverse = scale.inverse;
    if (thread == 0) to.scales()[slot] = scale.scale;
  }
  for (uint32_t d = thread; d < to.head_dim; d += kWarp) {
    to.put(index(d), from[d], inverse);
  }
}

// Turns the first angles.width elements of a head by a warp, in place.
__device__ inline void turn_head(float* head, RopeLayout layout, const DeviceRows& angles,
                                 uint32_t row, uint32_t thread) {
  const uint32_t half = angles.width / 2;
  for (uint32_t j = thread; j < half; j += kWarp) {
    float& a = layout == RopeLayout::kHalves ? head[j] : head[2 * j];
    float& b = layout == RopeLayout::kHalves ? head[half + j] : head[2 * j + 1];
    const float cos = row_at(angles, row)[j], sin = row_at(angles, row)[half + j];
    const float turned = arithmetic::fma(a, cos, -(b * sin));
    b = arithmetic::fma(b, cos, a * sin);
    a = turned;
  }
  __syncwarp();
}

// Where a row goes in a cache.
struct RowSlot {
  bool writes;
  uint32_t slot, block;

  __device__ RowSlot(const StepView& step, uint32_t row) : writes(step.writes[row] != 0) {
    const uint32_t position = step.positions[row];
    slot = position % kBlockTokens;
    block = step.blocks[step.first_blocks[row] + position / kBlockTokens];
  }
};

// The keys or the values of one head of a row, into its block.
template <KvType kType>
__device__ inline void store_row(const float* from, bool is_key, const RowSlot& row, uint32_t head,
                                 const DeviceKv& cache, uint32_t thread) {
  if (!row.writes) return;
  const uint32_t slot = row.slot, block = row.block;
  const Half<kType> to =
      is_key ? keys_of<kType>(cache, block, head) : values_of<kType>(cache, block, head);
  store_head(from, slot, to, thread, [&](uint32_t d) {
    if (cache.in_pairs) return is_key ? key_index(cache.stride, slot, d) : value_index(slot, d);
    return is_key ? d * uint32_t{kBlockTokens} + slot : slot * cache.head_dim + d;
  });
}

}  // namespace skein::cuda
