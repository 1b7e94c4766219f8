// A token's key and value into a cache of bfloat16 (KvLayer in backend.h).
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"
#include "backend/cpu/widen_kv.inl"

namespace skein::cpu {
namespace {

// Rounding goes 16 at a time; the numbers of one token then lie far apart: a pair of a key's
// dimensions every 64 bytes, those of its value every other one.
template <class V>
void store_bf16(const StoreToken& a) {
  constexpr size_t kPairBytes = 2 * sizeof(uint16_t), kRowBytes = 16 * kPairBytes;
  const size_t key_rows = padded_dims(a.head_dim) / 2;
  std::byte* key = a.head + a.slot / 16 * key_rows * kRowBytes + a.slot % 16 * kPairBytes;
  std::byte* value =
      a.head + half_bytes_bf16(a.head_dim) + a.slot / 2 * kRowBytes + a.slot % 2 * sizeof(uint16_t);
  for (size_t d = 0; d < a.head_dim; d += 16) {
    const size_t lanes = a.head_dim - d < 16 ? a.head_dim - d : 16;
    float keys[16], values[16];
    V::store(keys, V::round_bf16(load_lanes<V>(a.key + d, lanes)));
    V::store(values, V::round_bf16(load_lanes<V>(a.value + d, lanes)));
    // Past an odd number of dimensions comes a zero, which nobody reads.
    for (size_t i = 0; i < lanes; i += 2, key += kRowBytes) {
      const uint32_t pair =
          __builtin_bit_cast(uint32_t, keys[i]) >> 16 | __builtin_bit_cast(uint32_t, keys[i + 1]);
      __builtin_memcpy(key, &pair, sizeof(pair));
    }
    for (size_t i = 0; i < lanes; ++i) {
      const auto bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, values[i]) >> 16);
      __builtin_memcpy(value + i * kPairBytes, &bits, sizeof(bits));
    }
    value += kKernelBlockTokens / 2 * kRowBytes;
  }
}

}  // namespace
}  // namespace skein::cpu
