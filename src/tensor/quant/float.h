// F32, F16 and BF16: exact, every bit pattern included (subnormals, infinities; NaNs keep their
// payload).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace skein::quant {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline float f32_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline float f32_of_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t rebiased = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | rebiased << 23 | fraction << 13);
}

inline float load_f16(const std::byte* at) {
  return f32_of_f16(load<uint16_t>(at));
}

inline void dequantize_f32(const std::byte* from, size_t elements, float* out) {
  std::memcpy(out, from, elements * sizeof(float));
}

inline void dequantize_f16(const std::byte* from, size_t elements, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] = load_f16(from + 2 * i);
}

inline void dequantize_bf16(const std::byte* from, size_t elements, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] = f32_of_bf16(load<uint16_t>(from + 2 * i));
}

}  // namespace skein::quant
