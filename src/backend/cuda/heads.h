// Heads on their way to attention on tensor cores.
#pragma once

#include "backend/cuda/products.h"

namespace skein::cuda {

// The product that has queries, keys and values among its outputs, from these on; no planes: they
// are where they belong.
struct QkvSums {
  SegmentSums sums{};
  uint32_t q = 0, k = 0, v = 0;
};

// As turn_and_store, for caches in_pairs.
void prepare_heads(DeviceRows q, DeviceRows k, DeviceRows v, const QkvSums& sums, RopeLayout layout,
                   DeviceRows angles, const StepView& step, const DeviceKv& cache,
                   cudaStream_t stream);

}  // namespace skein::cuda
