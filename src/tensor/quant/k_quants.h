// Q2_K to Q6_K: super-blocks of 256 with float16 scales for the block, and small integer scales for
// groups of 16 or 32 inside of it. The order of multiplications is part of the format: the group's
// scale in float32 first, then the element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/quant/float.h"

namespace skein::quant {

inline constexpr size_t kSuperBlock = 256;

inline uint32_t byte_at(const std::byte* at, size_t i) {
  return static_cast<uint32_t>(at[i]);
}

// Two bits of element j: 64 bytes hold 256 elements as two halves of four planes of 32.
inline uint32_t two_bits_of_256(const std::byte* qs, size_t j) {
  return byte_at(qs, j / 128 * 32 + j % 32) >> (j / 32 % 4 * 2) & 3;
}

// block: scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin
// value = (d * scale) * q - (dmin * minimum), groups of 16
inline void dequantize_q2_k(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 84, out += kSuperBlock) {
    const float d = load_f16(block + 80), dmin = load_f16(block + 82);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const uint32_t packed = byte_at(block, j / 16);
      const float scale = d * static_cast<float>(packed & 0xf);
      const float minimum = dmin * static_cast<float>(packed >> 4);
      out[j] = scale * static_cast<float>(two_bits_of_256(block + 16, j)) - minimum;
    }
  }
}

// Scale g of 16, six bits each, offset 32: low nibbles in bytes 0 to 7, high pairs in 8 to 11.
inline int q3_k_scale(const std::byte* scales, size_t g) {
  const uint32_t low = byte_at(scales, g % 8) >> (g / 8 * 4) & 0xf;
  const uint32_t high = byte_at(scales, 8 + g % 4) >> (g / 4 * 2) & 3;
  return static_cast<int>(low | high << 4) - 32;
}

// block: hmask[32], qs[64], scales[12], d
// value = (d * scale) * (q - (high bit ? 0 : 4)), groups of 16
inline void dequantize_q3_k(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 110, out += kSuperBlock) {
    const float d = load_f16(block + 108);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const float scale = d * static_cast<float>(q3_k_scale(block + 96, j / 16));
      const bool high = (byte_at(block, j % 32) >> (j / 32) & 1) != 0;
      const int q = static_cast<int>(two_bits_of_256(block + 32, j)) - (high ? 0 : 4);
      out[j] = scale * static_cast<float>(q);
    }
  }
}

struct ScaleAndMinimum {
  uint32_t scale, minimum;
};

// Group g of 8 of Q4_K and Q5_K: six bits each in 12 bytes.
inline ScaleAndMinimum scale_and_minimum(const std::byte* packed, size_t g) {
  const uint32_t a = byte_at(packed, g % 4), b = byte_at(packed, 4 + g % 4);
  if (g < 4) return {a & 0x3f, b & 0x3f};
  const uint32_t c = byte_at(packed, 4 + g);
  return {(c & 0xf) | (a >> 6) << 4, c >> 4 | (b >> 6) << 4};
}

// Four bits of element j: 128 bytes hold 256 elements, in runs of 32 low and then 32 high nibbles.
inline uint32_t nibble_of_256(const std::byte* qs, size_t j) {
  return byte_at(qs, j / 64 * 32 + j % 32) >> (j / 32 % 2 * 4) & 0xf;
}

// block: d, dmin, scales[12], qs[128]
// value = (d * scale) * q - (dmin * minimum), groups of 32
inline void dequantize_q4_k(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 144, out += kSuperBlock) {
    const float d = load_f16(block), dmin = load_f16(block + 2);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const auto [scale, minimum] = scale_and_minimum(block + 4, j / 32);
      const float q = static_cast<float>(nibble_of_256(block + 16, j));
      out[j] = (d * static_cast<float>(scale)) * q - dmin * static_cast<float>(minimum);
    }
  }
}

// block: d, dmin, scales[12], qh[32], qs[128]
// as Q4_K, with bit j / 32 of qh[j % 32] as the fifth bit
inline void dequantize_q5_k(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 176, out += kSuperBlock) {
    const float d = load_f16(block), dmin = load_f16(block + 2);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const auto [scale, minimum] = scale_and_minimum(block + 4, j / 32);
      const uint32_t fifth = byte_at(block + 16, j % 32) >> (j / 32) & 1;
      const float q = static_cast<float>(nibble_of_256(block + 48, j) | fifth << 4);
      out[j] = (d * static_cast<float>(scale)) * q - dmin * static_cast<float>(minimum);
    }
  }
}

// block: ql[128], qh[64], scales[16] signed, d
// value = (d * scale) * (q - 32), groups of 16; ql in runs of 64 low and then 64 high nibbles
inline void dequantize_q6_k(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 210, out += kSuperBlock) {
    const float d = load_f16(block + 208);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const float scale = d * static_cast<float>(load<int8_t>(block + 192 + j / 16));
      const uint32_t low = byte_at(block, j / 128 * 64 + j % 64) >> (j / 64 % 2 * 4) & 0xf;
      const uint32_t q = low | two_bits_of_256(block + 128, j) << 4;
      out[j] = scale * static_cast<float>(static_cast<int>(q) - 32);
    }
  }
}

}  // namespace skein::quant
