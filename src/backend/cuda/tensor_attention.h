// Attention whose sums are those of tensor cores (f16_products.h), over caches that lie as it wants
// them (DeviceKv::in_pairs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <optional>

#include "backend/cuda/heads.h"

namespace skein::cuda {

// Heads have at most this many dimensions: queries are in shared memory.
inline constexpr uint32_t kMostTensorHeadDim = 1024;

// Whether the rows of a sequence, of which the last sees `context` tokens, have a kernel of their
// own in steps of many rows (can_attend_prompts). A step that has others, too, takes two kernels
// more then, which short contexts do not bring back.
SKEIN_HOST_DEVICE constexpr bool is_long_prompt(uint32_t rows, uint32_t context) {
  return rows >= 16 && context > 1024;
}

// The spans of the longest context of a step, and how many of them there is memory for at a time.
struct SpanBatch {
  uint32_t spans = 0;
  uint32_t at_once = 0;
  uint32_t processors = 0;  // that take items in turns; 0: each item has a block of threads
  bool is_whole = false;    // all of a row by the same block of threads (can_attend_whole_rows)
  bool has_prompts = false, has_others = true;  // sequences of is_long_prompt, and others
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
  bool skips_prompts = false;  // they are complete
  SpanSums sums;
};

// Where rows go that are complete: tiles of float16 numbers, as products.h has them.
struct RowTiles {
  std::byte* data = nullptr;  // nullptr: nowhere
  float* scales = nullptr;
  uint32_t rows = 0;
  uint32_t input_blocks = 0;
};

struct AttentionWork {
  DeviceHeads heads;
  StepView step;
  DeviceKv cache;
  DeviceAttention attention;
  SpanBatch batch;
  float* memory = nullptr;    // what SpanSums::floats asks for batch.at_once spans
  uint32_t* marks = nullptr;  // of is_whole: two of each row, zeros before and after
  DeviceRows out;
};

// Once for the current device.
cudaError_t set_up_attention();

// Where every row is a sequence of its own: heads need no preparation then, nothing is returned,
// and rows go into `tiles`, too.
bool can_attend_whole_rows(const AttentionWork& work);
// Where batch.has_prompts may be said.
bool can_attend_prompts(const AttentionWork& work);
// There is a row at least. `out` is complete when what is returned is merged, by merge_spans or on
// the way into a product (DeviceInput::merge).
std::optional<MergeParams> attend_on_tensor_cores(const AttentionWork& work, const RowTiles& tiles,
                                                  cudaStream_t stream);
void merge_spans(const MergeParams& params, cudaStream_t stream);

}  // namespace skein::cuda
