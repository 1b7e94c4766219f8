// Weights out of a seed, each word from its own place: nothing of a launch's shape enters them.
#include "backend/cuda/launch.cuh"

namespace skein::cuda {
namespace {

__device__ uint32_t noise_at(uint64_t seed, uint64_t place) {
  uint64_t x = (seed << 40) + place + 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return static_cast<uint32_t>(x >> 32);
}

// fn(place), by threads in turns.
template <class Fn>
__global__ void for_each_place(size_t count, Fn fn) {
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += size_t{gridDim.x} * kThreads) {
    fn(i);
  }
}

template <class Fn>
void launch_places(size_t count, cudaStream_t stream, const Fn& fn) {
  constexpr uint32_t kBlocks = 4096;
  if (count > 0) for_each_place<<<kBlocks, kThreads, 0, stream>>>(count, fn);
}

// Two numbers of 2^13 to 2^15, either sign: in a row of such the largest is as f16_products.h has
// it.
__device__ uint32_t two_numbers(uint32_t noise) {
  return 0x70007000U + (noise & 0x87ff87ffU);
}

// Four bytes of 64 inputs of a strip, from `at` on: codes, or scales with which they come out as
// large.
__device__ uint32_t word_of_codes(const TileFormat& format, uint32_t at, uint32_t noise) {
  const uint32_t scales = format.code_bytes() / kStripsOfTile;
  if (at < scales) return noise;
  if (format.short_scales) {
    return (noise & 0x03ff03ffU) | (format.low ? 0x74007400U : 0x64006400U);
  }
  const bool is_wide = format.bits == 8 || format.has_table;  // values of 8 bits
  if (at >= scales + format.scale_bytes() / kStripsOfTile) {
    return arithmetic::bits_of_float(is_wide ? -127.5F * 0x1p6F : -7.5F * 0x1p10F);
  }
  return (is_wide ? 133U : 137U) << 23 | (noise & 0x3ffU) << 13;
}

}  // namespace

void fill_floats(float* to, size_t count, uint64_t seed, cudaStream_t stream) {
  launch_places(count, stream, [=] __device__(size_t i) {
    to[i] = (static_cast<float>(noise_at(seed, i) & 0x3ffU) - 512.0F) * 0x1p-15F;
  });
}

void fill_tiles(const F16Tiles& tiles, std::byte* to, uint64_t seed, cudaStream_t stream) {
  const size_t words = tiles.block_bytes() / sizeof(uint32_t);
  const TileFormat format = tiles.format;
  const uint32_t block = format.tile_bytes() / kStripsOfTile;
  auto* const blocks = reinterpret_cast<uint32_t*>(to);
  launch_places(words, stream, [=] __device__(size_t i) {
    const uint32_t noise = noise_at(seed, i);
    const auto at = static_cast<uint32_t>(i * sizeof(uint32_t) % block);
    blocks[i] = format.bits == 16 ? two_numbers(noise) : word_of_codes(format, at, noise);
  });
  auto* const powers = reinterpret_cast<float*>(to + tiles.block_bytes());
  const float power = format.low ? 1.0F : 0x1p-20F;
  launch_places(size_t{tiles.row_blocks()} * kTileRows, stream,
                [=] __device__(size_t i) { powers[i] = power; });
}

}  // namespace skein::cuda
