// Codes in strips (packed_tiles.h) become what tensor cores take: the fragments of 16 outputs and
// 16 inputs that a warp's threads hold.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/make_tile.cuh"
#include "backend/f16_tiles.h"

namespace skein::cuda {

// Of the scales of outputs lane / 4 and + 8, for 32 inputs.
template <bool kLow>
struct StripScales {
  __half2 scale;
  __half2 high, minimum;  // with kLow: for codes in the high half of a byte, and what 8 codes weigh

  __device__ explicit StripScales(uint32_t pair) : scale(*reinterpret_cast<const __half2*>(&pair)) {
    if constexpr (kLow) {
      high = __hmul2(scale, __float2half2_rn(0.0625F));
      minimum = __hmul2(scale, __float2half2_rn(-0x1p-21F));
    }
  }
};

__device__ inline __half2 halves_of(uint32_t pair) {
  return *reinterpret_cast<const __half2*>(&pair);
}

__device__ inline uint32_t bits_of(__half2 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Eight codes, a word of a strip, as the four pairs of a thread: outputs lane / 4 and + 8 of inputs
// lane % 4 * 2 and + 1, then those of the inputs 8 further. One rounding each.
template <bool kLow>
__device__ inline void make_fragment(uint32_t codes, const StripScales<kLow>& scales,
                                     uint32_t (&out)[4]) {
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t own = i == 0 ? codes : codes >> 8;
    const auto of_row = [&](__half2 both) {
      return i == 0 ? __low2half2(both) : __high2half2(both);
    };
    if constexpr (kLow) {
      // The bits of a code are a subnormal number, code * 2^-24, or * 2^-20.
      const __half2 minimum = of_row(scales.minimum);
      out[i] = bits_of(__hfma2(halves_of(own & 0x000f000fU), of_row(scales.scale), minimum));
      out[2 + i] = bits_of(__hfma2(halves_of(own & 0x00f000f0U), of_row(scales.high), minimum));
    } else {
      // 1024 and an integer below it added up have the integer's bits, or 16 times its bits.
      const __half2 low = halves_of((own & 0x000f000fU) | 0x64006400U);
      const __half2 high = halves_of((own & 0x00f000f0U) | 0x64006400U);
      const __half2 values = __hsub2(low, __float2half2_rn(1032.0F));
      const __half2 further = __hfma2(high, __float2half2_rn(0.0625F), __float2half2_rn(-72.0F));
      out[i] = bits_of(__hmul2(values, of_row(scales.scale)));
      out[2 + i] = bits_of(__hmul2(further, of_row(scales.scale)));
    }
  }
}

// A thread's part of a strip's 64 inputs: four words of codes, and scales of 32 inputs each.
struct StripPart {
  uint4 codes;
  uint2 scales;
};

// Into a tile of float16 numbers in shared memory, by the warp of a strip.
template <bool kLow>
__device__ inline void put_strip(const StripPart& part, uint32_t strip, uint32_t lane,
                                 uint32_t tile) {
  const uint32_t words[4] = {part.codes.x, part.codes.y, part.codes.z, part.codes.w};
#pragma unroll
  for (uint32_t step = 0; step < 4; ++step) {
    uint32_t pairs[4];
    make_fragment<kLow>(words[step], StripScales<kLow>(step < 2 ? part.scales.x : part.scales.y),
                        pairs);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = strip * kStripRows + lane / 4 + i % 2 * 8;
      const uint32_t k = step * 16 + lane % 4 * 2 + i / 2 * 8;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(tile + offset_in_tile(row, k)), "r"(pairs[i])
                   : "memory");
    }
  }
}

// The inputs of tile `number` of a block of strips in shared memory, by a warpgroup.
__device__ inline void make_tile_of_strips(uint32_t block, uint32_t number, bool low,
                                           uint32_t tile) {
  const uint32_t strip = threadIdx.x % kWarpgroup / 32, lane = threadIdx.x % 32;
  const uint32_t from = block + strip * kStripBytes;
  StripPart part;
  part.codes = load_shared(from + number * (kStripCodes / 4) + lane * 16);
  const uint32_t scales = from + kStripCodes + lane / 4 * 32 + number * 8;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(part.scales.x), "=r"(part.scales.y)
               : "r"(scales)
               : "memory");
  low ? put_strip<true>(part, strip, lane, tile) : put_strip<false>(part, strip, lane, tile);
}

}  // namespace skein::cuda
