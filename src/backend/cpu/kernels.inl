// Fills the table for one vector type.
#pragma once

#include "backend/cpu/attention.inl"
#include "backend/cpu/dequantize.inl"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/multiply.inl"
#include "backend/cpu/rows.inl"
#include "backend/cpu/scan.inl"
#include "backend/cpu/store_kv.inl"

namespace skein::cpu {
namespace {

template <class V>
constexpr KernelTable make_kernels() {
  return {
      .dequantize = {.f16 = dequantize_f16<V>,
                     .bf16 = dequantize_bf16<V>,
                     .q4_0 = dequantize_q4_0<V>,
                     .q4_1 = dequantize_q4_1<V>,
                     .q5_0 = dequantize_q5_0<V>,
                     .q5_1 = dequantize_q5_1<V>,
                     .q8_0 = dequantize_q8_0<V>,
                     .q4_k = dequantize_q4_k<V>,
                     .q5_k = dequantize_q5_k<V>,
                     .q6_k = dequantize_q6_k<V>},
      .multiply = multiply<V>,
      .attend_span_f32 = attend_span<V, AsStored<HalfF32<V>>>,
      .attend_span_bf16 = attend_span<V, AsStored<HalfBf16<V>>>,
      .attend_span_int8 = attend_span<V, Widened<V>>,
      .store_bf16 = store_bf16<V>,
      .round_bf16 = round_bf16<V>,
      .merge_partial = merge_partial<V>,
      .finish_attention = finish_attention<V>,
      .norm = norm<V>,
      .activate = activate<V>,
      .scale = scale<V>,
      .add_scaled = add_scaled<V>,
      .rotate_halves = rotate_halves<V>,
      .rotate_pairs = rotate_pairs<V>,
      .combine = combine<V>,
      .finish_logits = finish_logits<V>,
      .largest = largest<V>,
      .find = find<V>,
      .sum_exp = sum_exp<V>,
      .collect = collect<V>,
      .exp = exp_all<V>,
  };
}

}  // namespace
}  // namespace skein::cpu
