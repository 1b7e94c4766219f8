// Attention over caches of bfloat16 whose blocks stream through shared memory.
#pragma once

#include "backend/cuda/tensor_attention.h"

namespace skein::cuda {

struct SpanParams;

// Heads of a cache of bfloat16 that have a place in the ring.
bool is_streamed(const DeviceKv& cache);

// grid: rows, parts of heads, spans of the batch.
void attend_streamed(const SpanParams& params, dim3 grid, const SpanBatch& batch,
                     cudaStream_t stream);

}  // namespace skein::cuda
