// IQ4_NL, IQ4_XS, MXFP4: four bits that index a table of values.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tensor/quant/float.h"
#include "tensor/quant/k_quants.h"
#include "tensor/quant/legacy.h"

namespace skein::quant {

inline constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1, so that they are whole; the scale is halved instead.
inline constexpr std::array<float, 16> kE2m1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

// block: d, qs[16]; value = d * table[q]
inline void dequantize_iq4_nl(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 18, out += kLegacyBlock) {
    const float d = load_f16(block);
    for (size_t j = 0; j < kLegacyBlock; ++j) out[j] = d * kIq4Values[nibble_of_32(block + 2, j)];
  }
}

// block: d, scales_h (16 bits, two a group), scales_l[4] (a nibble a group), qs[128]
// value = (d * (scale - 32)) * table[q], groups of 32 laid out as blocks of 32
inline void dequantize_iq4_xs(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kSuperBlock, block += 136, out += kSuperBlock) {
    const float d = load_f16(block);
    const uint32_t scales_h = load<uint16_t>(block + 2);
    for (size_t j = 0; j < kSuperBlock; ++j) {
      const size_t g = j / 32;
      const uint32_t low = byte_at(block + 4, g / 2) >> (g % 2 * 4) & 0xf;
      const uint32_t scale = low | (scales_h >> (2 * g) & 3) << 4;
      out[j] = (d * static_cast<float>(static_cast<int>(scale) - 32)) *
               kIq4Values[nibble_of_32(block + 8 + g * 16, j % 32)];
    }
  }
}

// Half of 2^(e - 127); the two smallest are subnormal.
inline float half_of_e8m0(uint32_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (e - 1) << 23);
}

// block: e, qs[16]; value = 2^(e - 127) * E2M1 value of q
inline void dequantize_mxfp4(const std::byte* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kLegacyBlock, block += 17, out += kLegacyBlock) {
    const float half = half_of_e8m0(byte_at(block, 0));
    for (size_t j = 0; j < kLegacyBlock; ++j) {
      out[j] = half * kE2m1Doubled[nibble_of_32(block + 1, j)];
    }
  }
}

}  // namespace skein::quant
