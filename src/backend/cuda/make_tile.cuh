// Codes and scales become a tile of float16 numbers in shared memory (packed_tiles.h), by a
// warpgroup: each thread has 32 inputs of an output.
#pragma once

#include "backend/arithmetic.h"
#include "backend/cuda/hopper.cuh"
#include "backend/f16_tiles.h"

namespace skein::cuda {

inline constexpr uint32_t kWarpgroup = 128;

// What was written to shared memory is seen by tensor cores, by all of the warpgroup's threads.
__device__ inline void sync_warpgroup(uint32_t group) {
  asm volatile(
      "fence.proxy.async.shared::cta;\n"
      "bar.sync %0, %1;" ::"r"(group + 1),
      "n"(kWarpgroup)
      : "memory");
}

__device__ inline uint4 load_shared(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ inline float load_shared_float(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ inline void store_shared(uint32_t address, const uint32_t (&x)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}

// Two numbers as float16, the first one in the low half.
__device__ inline uint32_t f16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The values of the 4-bit codes of a format with a table.
__device__ inline float* table_of_block() {
  __shared__ float table[16];
  return table;
}
__device__ inline void load_table(const TileFormat& format) {
  if (threadIdx.x < 16 && format.has_table) {
    table_of_block()[threadIdx.x] = static_cast<float>(format.table[threadIdx.x]);
  }
}

// Codes of a byte each as numbers: 2^23 and an integer below it added up have the integer's bits.
struct CodeReader {
  float offset;

  __device__ float value(uint32_t bytes, uint32_t i) const {
    const uint32_t bits = __byte_perm(bytes, 0x4b000000U, 0x7540U | i);
    return arithmetic::float_of_bits(bits) - offset;
  }
};

template <uint32_t kBits>
__device__ void make_tile(uint32_t block, const TileFormat& format, uint32_t tile) {
  const uint32_t thread = threadIdx.x % kWarpgroup, row = thread / 2, first = thread % 2 * 32;
  const uint32_t scales = block + format.code_bytes() + thread * (format.halves ? 8 : 4);
  float scale[2], minimum[2] = {0, 0};
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t at = scales + (format.halves ? half * 4 : 0);
    scale[half] = load_shared_float(at);
    if (format.has_minimum) minimum[half] = load_shared_float(at + format.scale_bytes());
  }
  const CodeReader reader{8388608.0F + static_cast<float>(format.offset)};
  const float* const table = table_of_block();
  uint4 words[2];
  words[0] = load_shared(block + thread * 16);
  if constexpr (kBits == 8) words[1] = load_shared(block + kWarpgroup * 16 + thread * 16);
#pragma unroll
  for (uint32_t piece = 0; piece < 4; ++piece) {
    float values[8];
    if constexpr (kBits == 4) {
      const uint32_t word = piece == 0   ? words[0].x
                            : piece == 1 ? words[0].y
                            : piece == 2 ? words[0].z
                                         : words[0].w;
      const uint32_t low = word & 0x0f0f0f0fU, high = word >> 4 & 0x0f0f0f0fU;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        if (format.has_table) {
          values[2 * i] = table[low >> (8 * i) & 0xf];
          values[2 * i + 1] = table[high >> (8 * i) & 0xf];
        } else {
          values[2 * i] = reader.value(low, i);
          values[2 * i + 1] = reader.value(high, i);
        }
      }
    } else {
      const uint4& own = words[piece / 2];
      const uint32_t low = piece % 2 == 0 ? own.x : own.z, high = piece % 2 == 0 ? own.y : own.w;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        values[i] = reader.value(low, i);
        values[4 + i] = reader.value(high, i);
      }
    }
    const float by = scale[piece / 2], plus = minimum[piece / 2];
    uint32_t numbers[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      float a = values[2 * i], b = values[2 * i + 1];
      a = format.has_minimum ? arithmetic::fma(a, by, plus) : a * by;
      b = format.has_minimum ? arithmetic::fma(b, by, plus) : b * by;
      numbers[i] = f16_pair(a, b);
    }
    store_shared(tile + offset_in_tile(row, first + piece * 8), numbers);
  }
}

}  // namespace skein::cuda
