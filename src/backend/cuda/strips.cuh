// Codes in strips (packed_tiles.h) become what tensor cores take: the fragments of 16 outputs and
// 16 inputs that a warp's threads hold. Each kind of codes reads what a thread has of 64 inputs of
// a strip, and makes four fragments of it, with one rounding for each number: pairs of numbers of
// outputs lane / 4 and + 8, inputs lane % 4 * 2 and + 1, then those of the inputs 8 further.
#pragma once

#include <cuda_fp16.h>

#include "backend/arithmetic.h"
#include "backend/cuda/hopper.cuh"
#include "backend/f16_tiles.h"

namespace skein::cuda {

inline constexpr uint32_t kWarpgroup = 128;
inline constexpr uint32_t kSteps = kTileInputs / arithmetic::kF16Group;  // of 64 inputs

// fn(tile) for the tiles of a chunk, of which the last of a segment may have fewer than kTiles; of
// a whole one those that come next can begin before the first has ended.
template <uint32_t kTiles, class Fn>
__device__ void for_each_tile(uint32_t left, const Fn& fn) {
  if (left < kTiles) {
#pragma unroll 1
    for (uint32_t tile = 0; tile < left; ++tile) fn(tile);
    return;
  }
#pragma unroll
  for (uint32_t tile = 0; tile < kTiles; ++tile) fn(tile);
}

// How a matrix's codes are to be read.
struct StripFormat {
  uint32_t bytes;             // of 64 inputs of a strip
  uint32_t scales, minimums;  // where they begin; none: 0
  float offset;               // of the sum of a code and 2^23
  uint32_t table[4];          // bytes of 128 and a value added up

  __device__ explicit StripFormat(const TileFormat& format)
      : bytes(format.tile_bytes() / kStripsOfTile),
        scales(format.code_bytes() / kStripsOfTile),
        minimums(format.has_minimum ? scales + format.scale_bytes() / kStripsOfTile : 0),
        offset(8388608.0F + (format.has_table ? 128.0F : static_cast<float>(format.offset))) {
#pragma unroll
    for (uint32_t i = 0; i < 16; i += 4) {
      table[i / 4] = 0;
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        table[i / 4] |= (static_cast<uint32_t>(format.table[i + j]) & 0xffU ^ 0x80U) << (8 * j);
      }
    }
  }
};

__device__ inline __half2 halves_of(uint32_t pair) {
  return *reinterpret_cast<const __half2*>(&pair);
}
__device__ inline uint32_t bits_of(__half2 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Codes of 4 bits with short scales; kLow as TileFormat::low.
template <bool kLow>
struct ShortCodes {
  static constexpr uint32_t kBits = 4, kTiles = 4;  // so many times 64 inputs come at once
  uint32_t codes[4];
  uint2 scales;

  __device__ ShortCodes(const StripFormat& format, uint32_t at, uint32_t lane) {
    load_shared(at + lane * 16, codes);
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(scales.x), "=r"(scales.y)
                 : "r"(at + format.scales + lane / 4 * 8)
                 : "memory");
  }
  __device__ void make(const StripFormat&, uint32_t step, uint32_t (&out)[4]) const {
    const __half2 scale = halves_of(step < 2 ? scales.x : scales.y);
    const __half2 high = __hmul2(scale, __float2half2_rn(0.0625F));
    const __half2 minimum = __hmul2(scale, __float2half2_rn(-0x1p-21F));
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t own = i == 0 ? codes[step] : codes[step] >> 8;
      const auto of_row = [&](__half2 both) {
        return i == 0 ? __low2half2(both) : __high2half2(both);
      };
      if constexpr (kLow) {
        // The bits of a code are a subnormal number, code * 2^-24, or * 2^-20.
        out[i] = bits_of(__hfma2(halves_of(own & 0x000f000fU), of_row(scale), of_row(minimum)));
        out[2 + i] = bits_of(__hfma2(halves_of(own & 0x00f000f0U), of_row(high), of_row(minimum)));
      } else {
        // 1024 and an integer below it added up have the integer's bits, or 16 times its bits.
        const __half2 near = halves_of((own & 0x000f000fU) | 0x64006400U);
        const __half2 far = halves_of((own & 0x00f000f0U) | 0x64006400U);
        const __half2 values = __hsub2(near, __float2half2_rn(1032.0F));
        const __half2 further = __hfma2(far, __float2half2_rn(0.0625F), __float2half2_rn(-72.0F));
        out[i] = bits_of(__hmul2(values, of_row(scale)));
        out[2 + i] = bits_of(__hmul2(further, of_row(scale)));
      }
    }
  }
};

// Codes of kBitsOf bits, or of 4 with a table, with scales, and minimums, in float32; kHalves as
// TileFormat::halves.
template <uint32_t kBitsOf, bool kHalves, bool kTable = false>
struct LongCodes {
  static constexpr uint32_t kBits = kBitsOf, kTiles = 2, kGroups = kHalves ? 4 : 2;
  uint32_t codes[kBits];
  float2 scales[kGroups], minimums[kGroups];  // of both outputs

  __device__ LongCodes(const StripFormat& format, uint32_t at, uint32_t lane) {
#pragma unroll
    for (uint32_t i = 0; i < kBits; i += 4) {
      load_shared(at + i * 128 + lane * 16, reinterpret_cast<uint32_t(&)[4]>(codes[i]));
    }
    load_floats(at + format.scales, lane, scales);
    if (format.minimums == 0) {
#pragma unroll
      for (float2& minimum : minimums) minimum = {0, 0};
    } else {
      load_floats(at + format.minimums, lane, minimums);
    }
  }
  __device__ void make(const StripFormat& format, uint32_t step, uint32_t (&out)[4]) const {
    uint32_t bytes[2];
    if constexpr (kBits == 8) {
      bytes[0] = codes[2 * step];
      bytes[1] = codes[2 * step + 1];
    } else if constexpr (kTable) {
      look_up(format, codes[step], bytes);
    } else {
      bytes[0] = codes[step] & 0x0f0f0f0fU;
      bytes[1] = codes[step] >> 4 & 0x0f0f0f0fU;
    }
    const float2 scale = scales[step * kGroups / kSteps];
    const float2 minimum = minimums[step * kGroups / kSteps];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      // 2^23 and an integer below it added up have the integer's bits.
      float x[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t sum = __byte_perm(bytes[i], 0x4b000000U, 0x7540U | j);
        x[j] = arithmetic::fma(arithmetic::float_of_bits(sum) - format.offset,
                               j % 2 == 0 ? scale.x : scale.y, j % 2 == 0 ? minimum.x : minimum.y);
      }
      out[2 * i] = f16_pair(x[0], x[2]);
      out[2 * i + 1] = f16_pair(x[1], x[3]);
    }
  }

 private:
  __device__ static void load_floats(uint32_t at, uint32_t lane, float2 (&out)[kGroups]) {
#pragma unroll
    for (uint32_t i = 0; i < kGroups; i += 2) {
      uint32_t x[4];
      load_shared(at + lane / 4 * (8 * kGroups) + i * 8, x);
      out[i] = {arithmetic::float_of_bits(x[0]), arithmetic::float_of_bits(x[1])};
      out[i + 1] = {arithmetic::float_of_bits(x[2]), arithmetic::float_of_bits(x[3])};
    }
  }
  // What the table says of the eight codes of a word, in the order of `bytes` of others: a byte of
  // eight is picked by three bits, and one of two by the fourth.
  __device__ static void look_up(const StripFormat& format, uint32_t word, uint32_t (&bytes)[2]) {
    uint32_t of_half[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t own = i == 0 ? word : word >> 16, among = own & 0x7777U;
      of_half[i] = __byte_perm(__byte_perm(format.table[0], format.table[1], among),
                               __byte_perm(format.table[2], format.table[3], among),
                               (own & 0x8888U) >> 1 | 0x3210U);
    }
    bytes[0] = __byte_perm(of_half[0], of_half[1], 0x6420U);
    bytes[1] = __byte_perm(of_half[0], of_half[1], 0x7531U);
  }
};

}  // namespace skein::cuda
