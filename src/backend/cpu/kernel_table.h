// The kernels of one instruction set, as one table. The bodies are written once, in *.inl, over 16
// lanes (vec_*.h); kernels_<isa>.cpp instantiates them with that ISA's flags.
//
// All pointers may be unaligned. Kernels read and write exactly the elements that they are given.
// They expect FlushDenormals to be in force. The kernel files include nothing but plain headers:
// a template or inline function of the standard library that is compiled there could be linked into
// code that runs on an older CPU (test: isa_objects).
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::cpu {

// `elements` values, a whole number of blocks, as tensor/dequantize.h defines them.
using Dequantize = void (*)(const uint8_t* blocks, size_t elements, float* out);

struct Dequantizers {
  Dequantize f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k;
};

// A weight panel has rows of a multiple of 16 floats, zeros past the inputs, and memory for a
// multiple of this many rows.
inline constexpr size_t kPanelRows = 8;

// out[i][first_output + n] = dot(x[i], weights[n]) + bias[n], for i < count and n < weight_rows.
struct Multiply {
  const float* const* x;  // [count] rows of `inputs`
  float* const* out;      // [count] rows
  size_t count;
  size_t inputs;
  const float* weights;
  size_t weight_stride;  // floats, a multiple of 16
  size_t weight_rows;
  const float* bias;  // [weight_rows] or nullptr
  size_t first_output;
};

inline constexpr size_t kKernelBlockTokens = 32;  // base/ids.h is not for kernel files

// Some rows of a sequence, each with the query heads that share a kv head, over one span. One row,
// or no more than 16 queries.
struct AttendSpan {
  const float* queries;  // [rows * shared][head_dim]; rounded where the cache is
  size_t rows, shared;
  size_t head_dim;
  const std::byte* const* blocks;  // the head in each of the span's blocks that somebody sees
  const std::byte* next;           // the head that will be read after these, or nullptr
  // [rows] the tokens that a row sees, from the start of the span; none if begin >= end, and then
  // its partials are not touched.
  const size_t *begin, *end;
  float scale, softcap;
  float* scores;       // memory for rows * shared * kSpanTokens
  float* partials;     // [rows * shared][head_dim + 2]: values, then the maximum, then the weight
  std::byte* widened;  // of int8: memory for half of a block's head in bfloat16
};

// A token's key and value, to their place in a block's head (KvLayer in backend.h).
struct StoreToken {
  const float *key, *value;  // [head_dim]
  size_t head_dim;
  size_t slot;  // the token's place in its block
  std::byte* head;
};

enum class RowNorm : uint8_t { kRms, kLayer };

struct NormRow {
  RowNorm kind;
  const float* x;
  size_t width;
  float epsilon;
  const float* weight;  // or nullptr
  const float* bias;    // or nullptr
  float* out;
};

enum class RowActivation : uint8_t { kSilu, kGeluTanh, kGeluTanhPlain, kSwigluClamped, kGelu };

struct ActivateRow {
  RowActivation kind;
  const float* gate;
  const float* up;  // unless kGeluTanhPlain or kGelu
  size_t width;
  float alpha, limit;
  float* out;
};

struct KernelTable {
  Dequantizers dequantize;
  void (*multiply)(const Multiply& args);

  void (*attend_span_f32)(const AttendSpan& args);
  void (*attend_span_bf16)(const AttendSpan& args);
  void (*attend_span_int8)(const AttendSpan& args);
  void (*store_bf16)(const StoreToken& args);
  void (*round_bf16)(const float* x, size_t count, float* out);  // still as floats
  // Joins the partial of a later span into that of the earlier ones.
  void (*merge_partial)(float* total, const float* span, size_t head_dim);
  // The result; `sink` or nullptr.
  void (*finish_attention)(const float* total, const float* sink, size_t head_dim, float* out);

  void (*norm)(const NormRow& args);
  void (*activate)(const ActivateRow& args);
  void (*scale)(const float* x, float factor, size_t count, float* out);         // out = factor * x
  void (*add_scaled)(float* x, const float* delta, float factor, size_t count);  // x += factor * d
  void (*rotate_halves)(float* head, const float* cos, const float* sin, size_t half);
  void (*rotate_pairs)(float* head, const float* cos, const float* sin, size_t half);
  // out = sum over j < used of weights[j] * x[j * stride ...]
  void (*combine)(const float* x, size_t stride, const float* weights, size_t used, size_t width,
                  float* out);
  void (*finish_logits)(float* x, size_t count, float scale, float softcap);

  // Over a vocabulary (vocabulary_scan.h), of those tokens that `mask` has a bit for, none past
  // `count`; nullptr: all.
  float (*largest)(const float* x, size_t count, const uint64_t* mask,
                   bool* all_finite);  // NaNs aside
  size_t (*find)(const float* x, size_t count, const uint64_t* mask,
                 float value);  // the first; count: none
  float (*sum_exp)(const float* x, size_t count, const uint64_t* mask, float max, float factor);
  size_t (*collect)(const float* x, size_t count, const uint64_t* mask, float threshold,
                    int32_t* ids, float* values, size_t capacity);
  void (*exp)(const float* x, size_t count, float* out);
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
void attend_span_amx(const AttendSpan& args);  // attend_span_bf16 by tiles
#endif

}  // namespace skein::cpu
