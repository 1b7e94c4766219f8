// What a product is whose segments are still apart (SegmentSums), on the device.
#pragma once

#include "backend/cuda/products.h"

namespace skein::cuda {

// kCount outputs side by side, from output n on, which is a multiple of kCount.
template <uint32_t kCount>
struct alignas(kCount * sizeof(float)) Outputs {
  float at[kCount];
};

template <uint32_t kCount>
__device__ inline Outputs<kCount> load_outputs(const float* from) {
  Outputs<kCount> out;
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(out.at) = *reinterpret_cast<const float4*>(from);
  } else {
    for (uint32_t i = 0; i < kCount; ++i) out.at[i] = from[i];
  }
  return out;
}

// What product_at will read that is there before the product is.
__device__ inline void fetch_scales(const SegmentSums& sums, uint32_t n) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(sums.scales + n));
}

// All loads are under way before the first sum.
template <uint32_t kCount>
__device__ inline Outputs<kCount> product_at(const SegmentSums& sums, uint32_t row, uint32_t n) {
  const size_t plane = size_t{sums.rows} * sums.outputs;
  const float* const first = sums.planes + size_t{row} * sums.outputs + n;
  Outputs<kCount> parts[SegmentSums::kMost];
#pragma unroll
  for (uint32_t s = 0; s < SegmentSums::kMost; ++s) {
    if (s < sums.segments) parts[s] = load_outputs<kCount>(first + s * plane);
  }
  const Outputs<kCount> scales = load_outputs<kCount>(sums.scales + n);
  const float row_scale = sums.row_scales[row];
  Outputs<kCount> out = parts[0];
#pragma unroll
  for (uint32_t s = 1; s < SegmentSums::kMost; ++s) {
    if (s >= sums.segments) continue;
    for (uint32_t i = 0; i < kCount; ++i) out.at[i] = out.at[i] + parts[s].at[i];
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    out.at[i] = out.at[i] * scales.at[i] * row_scale;
    if (sums.bias != nullptr) out.at[i] = out.at[i] + sums.bias[n + i];
  }
  return out;
}

}  // namespace skein::cuda
