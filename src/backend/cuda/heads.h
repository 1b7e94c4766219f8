// Heads on their way to attention on tensor cores.
#pragma once

#include "backend/cuda/products.h"

namespace skein::cuda {

// Queries, keys and values of rows: the outputs of a product from these on, whose segments may
// still be apart, and how they are turned (no angles: not at all).
struct DeviceHeads {
  DeviceRows rows[3];
  SegmentSums sums{};  // no planes: rows are as they belong
  uint32_t first_outputs[3] = {};
  RopeLayout layout = RopeLayout::kHalves;
  DeviceRows angles{};

  // Whether four numbers that lie side by side can be read at once.
  bool in_fours(uint32_t head_dim) const;
};

// Turns heads in place, and stores keys and values, for caches in_pairs.
void prepare_heads(const DeviceHeads& heads, const StepView& step, const DeviceKv& cache,
                   cudaStream_t stream);

}  // namespace skein::cuda
