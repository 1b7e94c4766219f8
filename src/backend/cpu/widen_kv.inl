// A block's head of KvType::kInt8 as one of kBf16 (KvLayer in backend.h): the bytes of two vectors
// of 16 make one vector of 16 pairs. One pass for all queries of a tile.
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

constexpr size_t padded_dims(size_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

constexpr size_t half_bytes_bf16(size_t head_dim) {
  return kKernelBlockTokens * padded_dims(head_dim) * sizeof(uint16_t);
}
constexpr size_t half_bytes_int8(size_t head_dim) {
  return kKernelBlockTokens * (padded_dims(head_dim) + sizeof(float));
}

// 32 bytes, with the scales of the first and of the second 16.
template <class V>
void widen_pairs(const uint8_t* q, typename V::F first, typename V::F second, float* out) {
  const auto even = V::mul(V::to_float(V::load_i8(q)), first);
  const auto odd = V::mul(V::to_float(V::load_i8(q + 16)), second);
  V::store(out, V::bf16_pairs(even, odd));
}

// `keys` to `out`, both the start of a half; `next` is the half that will be wanted after it, and
// is fetched by the way: all at once would keep this one waiting.
template <class V>
void widen_keys(const std::byte* keys, size_t head_dim, const std::byte* next, std::byte* out) {
  const size_t dims = padded_dims(head_dim);
  const auto* q = reinterpret_cast<const uint8_t*>(keys);
  const auto* scales = reinterpret_cast<const float*>(q + kKernelBlockTokens * dims);
  auto* to = reinterpret_cast<float*>(out);
  for (size_t half = 0; half < 2; ++half) {
    const auto scale = V::load(scales + 16 * half);
    for (size_t d = 0; d < dims; d += 4, q += 64, to += 32, next += 64) {
      __builtin_prefetch(next);
      widen_pairs<V>(q, scale, scale, to);
      widen_pairs<V>(q + 32, scale, scale, to + 16);
    }
  }
}

template <class V>
void widen_values(const std::byte* values, size_t head_dim, const std::byte* next, std::byte* out) {
  const size_t dims = padded_dims(head_dim);
  const auto* q = reinterpret_cast<const uint8_t*>(values);
  const auto* scales = reinterpret_cast<const float*>(q + kKernelBlockTokens * dims);
  auto* to = reinterpret_cast<float*>(out);
  for (size_t d = 0; d < dims; d += 16) {
    for (size_t t = 0; t < kKernelBlockTokens; t += 4, q += 64, to += 32, next += 64) {
      __builtin_prefetch(next);
      widen_pairs<V>(q, V::splat(scales[t]), V::splat(scales[t + 1]), to);
      widen_pairs<V>(q + 32, V::splat(scales[t + 2]), V::splat(scales[t + 3]), to + 16);
    }
  }
}

}  // namespace
}  // namespace skein::cpu
