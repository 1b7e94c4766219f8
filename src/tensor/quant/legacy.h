// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with a float16 scale d (and, in the _1 formats, a
// float16 minimum m). Byte j of qs holds element j in its low and element j + 16 in its high
// nibble; bit j of the 32-bit qh is the fifth bit of element j.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/quant/float.h"

namespace skein::quant {

inline constexpr size_t kLegacyBlock = 32;

// The low four bits of element j of a block of 32.
inline uint32_t nibble_of_32(const std::byte* qs, size_t j) {
  const auto pair = static_cast<uint32_t>(qs[j % 16]);
  return j < 16 ? pair & 0xf : pair >> 4;
}

// block: d, qs[16]; value = d * (q - 8)
inline void dequantize_q4_0(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 18, out += kLegacyBlock) {
    const float d = load_f16(block);
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      out[j] = d * static_cast<float>(static_cast<int>(nibble_of_32(block + 2, j)) - 8);
    }
  }
}

// block: d, m, qs[16]; value = d * q + m
inline void dequantize_q4_1(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 20, out += kLegacyBlock) {
    const float d = load_f16(block), m = load_f16(block + 2);
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      out[j] = d * static_cast<float>(nibble_of_32(block + 4, j)) + m;
    }
  }
}

// block: d, qh, qs[16]; value = d * (q - 16)
inline void dequantize_q5_0(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 22, out += kLegacyBlock) {
    const float d = load_f16(block);
    const auto qh = load<uint32_t>(block + 2);
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      const uint32_t q = nibble_of_32(block + 6, j) | (qh >> j & 1) << 4;
      out[j] = d * static_cast<float>(static_cast<int>(q) - 16);
    }
  }
}

// block: d, m, qh, qs[16]; value = d * q + m
inline void dequantize_q5_1(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 24, out += kLegacyBlock) {
    const float d = load_f16(block), m = load_f16(block + 2);
    const auto qh = load<uint32_t>(block + 4);
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      const uint32_t q = nibble_of_32(block + 8, j) | (qh >> j & 1) << 4;
      out[j] = d * static_cast<float>(q) + m;
    }
  }
}

// block: d, qs[32] signed; value = d * q
inline void dequantize_q8_0(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 34, out += kLegacyBlock) {
    const float d = load_f16(block);
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      out[j] = d * static_cast<float>(load<int8_t>(block + 2 + j));
    }
  }
}

}  // namespace skein::quant
