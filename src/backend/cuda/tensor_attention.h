// Attention whose sums are those of tensor cores (f16_products.h), over caches that lie as it wants
// them (DeviceKv::in_pairs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"

namespace skein::cuda {

// Heads have at most this many dimensions: queries are in shared memory.
inline constexpr uint32_t kMostTensorHeadDim = 1024;

// The spans of the longest context of a step, and how many of them there is memory for at a time.
struct SpanBatch {
  uint32_t spans = 0;
  uint32_t at_once = 0;
  uint32_t processors = 0;  // that take items in turns; 0: each item has a block of threads
};

// What spans give, for each query (a head of a row) and span of a batch, and what all spans before
// gave for each query: its largest score and its sum of weights.
struct SpanSums {
  float* running = nullptr;
  float* next = nullptr;
  float* largest = nullptr;
  float* weights = nullptr;
  float* values = nullptr;

  static size_t floats(uint32_t rows, uint32_t heads, uint32_t spans, uint32_t head_dim);
  // In so many floats.
  static SpanSums in(float* memory, uint32_t rows, uint32_t heads, uint32_t spans);
};

// Spans of a batch, to be merged in order, onto what those before gave.
struct MergeParams {
  StepView step;
  DeviceAttention attention;
  DeviceRows out;
  uint32_t head_dim = 0;
  uint32_t first_span = 0, spans = 0;
  bool is_last = true;
  SpanSums sums;
};

// Once for the current device.
cudaError_t set_up_attention();

// `memory` is what SpanSums::floats asks for batch.at_once spans. `out` is complete when what is
// returned is merged, by merge_spans or on the way into a product (DeviceInput::merge). There is a
// row at least.
MergeParams attend_on_tensor_cores(DeviceRows q, const StepView& step, const DeviceKv& cache,
                                   const DeviceAttention& params, const SpanBatch& batch,
                                   float* memory, DeviceRows out, cudaStream_t stream);
void merge_spans(const MergeParams& params, cudaStream_t stream);

}  // namespace skein::cuda
