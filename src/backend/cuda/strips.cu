// Few rows times codes in strips. Each warp feeds itself: it asks for the next inputs of its strip
// while it multiplies the last ones, and meets the others only where rows come into shared memory.
// All processors get the same number of strips, or one less.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product_params.h"
#include "backend/cuda/strips.cuh"

namespace skein::cuda {
namespace {

// Fewer warps, or more slots, take up to twice as long.
constexpr uint32_t kStripWarps = 16, kSlots = 2;
constexpr uint32_t kRowPiece = kTileInputs * sizeof(uint16_t);
constexpr uint32_t kBarrierBytes = kStripWarps * kSlots * 8;
constexpr uint32_t kMostSharedBytes = 232448;
// More than a half of a processor's: two blocks of threads on one would leave another without work.
constexpr uint32_t kFewestSharedBytes = 116736;

struct StripParams : ProductParams {
  uint32_t strips;      // of 16 outputs
  uint32_t slot_bytes;  // of a warp's ring
};

// Strips of segments, one after the other.
struct StripRun {
  uint32_t begin, end;

  __device__ explicit StripRun(const StripParams& p) {
    const uint32_t all = p.strips * p.matrix.segments;
    begin = blockIdx.x * all / gridDim.x;
    end = (blockIdx.x + 1) * all / gridDim.x;
  }
};

// What a warp asks for: its strips, kTiles * 64 inputs at a time or what is left of a segment.
template <uint32_t kTiles>
class StripFeed {
 public:
  __device__ StripFeed(const StripParams& p, const StripRun& run, uint32_t warp, uint32_t bytes)
      : p_(p), bytes_(bytes), end_(run.end), unit_(run.begin + warp) {
    find();
  }
  // By one thread.
  __device__ void ask(uint32_t slot, uint32_t full, uint64_t policy) {
    if (unit_ >= end_) return;
    const uint32_t tiles = min(kTiles, p_.matrix.segment_blocks - tile_), bytes = tiles * bytes_;
    arrive_and_expect(full, bytes);
    copy_bulk(slot, chunk_ + strip_ * bytes, bytes, full, policy);
    chunk_ += kStripsOfTile * bytes;
    tile_ += tiles;
    if (tile_ < p_.matrix.segment_blocks) return;
    tile_ = 0;
    unit_ += kStripWarps;
    find();
  }

 private:
  __device__ void find() {
    const uint32_t segment = unit_ / p_.strips, strip = unit_ - segment * p_.strips;
    const size_t block = size_t{strip / kStripsOfTile} * p_.matrix.input_blocks() +
                         segment * p_.matrix.segment_blocks;
    chunk_ = p_.matrix.blocks + block * kStripsOfTile * bytes_;
    strip_ = strip % kStripsOfTile;
  }

  const StripParams& p_;
  const uint32_t bytes_, end_;
  uint32_t unit_, strip_, tile_ = 0;
  const std::byte* chunk_;
};

// Rows of so many segments from the first one on, [inputs / 64][rows][64], by all threads.
__device__ void load_rows(const StripParams& p, uint32_t first_block, uint32_t blocks,
                          uint32_t to) {
  const uint32_t pieces = blocks * p.rows * 8;
  constexpr uint32_t kAtOnce = 4, kAll = kStripWarps * kWarp;
  for (uint32_t first = threadIdx.x; first < pieces; first += kAtOnce * kAll) {
    uint4 x[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t piece = first + i * kAll, block = piece / 8 / p.rows;
      if (piece >= pieces) break;
      const uint32_t row = piece / 8 - block * p.rows;
      const size_t at = size_t{first_block + block} * p.x_rows + row;
      x[i] = *reinterpret_cast<const uint4*>(p.x + at * kRowPiece + piece % 8 * 16);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t piece = first + i * kAll;
      if (piece >= pieces) break;
      const uint32_t words[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
      store_shared(to + piece * 16, words);
    }
  }
}

__device__ inline void add_fragments(float* sums, const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 64 inputs of a strip. `rows` are the thread's addresses in the rows of these.
template <class Codes, uint32_t kTokens>
__device__ void add_strip(const StripFormat& format, uint32_t strip,
                          const uint32_t (&rows)[kTokens / 8], uint32_t from, uint32_t lane,
                          float (&sums)[kTokens / 2]) {
  const Codes codes(format, strip, lane);
  uint32_t b[kTokens / 8][8];
#pragma unroll
  for (uint32_t n = 0; n < kTokens / 8; ++n) {
    load_matrices(from + rows[n], b[n]);
    load_matrices(from + (rows[n] ^ 64), b[n] + 4);
  }
#pragma unroll
  for (uint32_t step = 0; step < kSteps; ++step) {
    uint32_t a[4];
    codes.make(format, step, a);
#pragma unroll
    for (uint32_t n = 0; n < kTokens / 8; ++n) {
      add_fragments(sums + n * 4, a, b[n][step * 2], b[n][step * 2 + 1]);
    }
  }
}

// What a thread's sums are multiplied with: of its two outputs, and of its tokens.
template <uint32_t kTokens>
struct StripScales {
  float own[2] = {}, of_token[kTokens / 4] = {};

  __device__ void load_own(const StripParams& p, uint32_t strip, uint32_t lane) {
    if (p.sums != nullptr) return;
    const auto* const scales =
        reinterpret_cast<const float*>(p.matrix.blocks + p.matrix.block_bytes());
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) own[i] = scales[strip * kStripRows + lane / 4 + i * 8];
  }
  __device__ void load_of_tokens(const StripParams& p, uint32_t lane) {
    if (p.sums != nullptr) return;
#pragma unroll
    for (uint32_t i = 0; i < kTokens / 4; ++i) {
      of_token[i] = p.x_scales[min(i / 2 * 8 + lane % 4 * 2 + i % 2, p.rows - 1)];
    }
  }
};

template <uint32_t kTokens>
__device__ void write_strip(const StripParams& p, uint32_t strip, uint32_t segment, uint32_t lane,
                            const StripScales<kTokens>& scales, const float (&sums)[kTokens / 2]) {
#pragma unroll
  for (uint32_t j = 0; j < kTokens / 2; ++j) {
    const uint32_t output = strip * kStripRows + lane / 4 + j / 2 % 2 * 8;
    const uint32_t token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (token >= p.rows || output >= p.matrix.outputs) continue;
    if (p.sums != nullptr) {
      p.sums[(size_t{segment} * p.rows + token) * p.matrix.outputs + output] = sums[j];
      continue;
    }
    const float value = sums[j] * scales.own[j / 2 % 2] * scales.of_token[j / 4 * 2 + j % 2];
    p.out[token * p.out_stride + output] = p.bias == nullptr ? value : value + p.bias[output];
  }
}

// Registers leave room for a norm beside it.
template <class Codes, uint32_t kTokens>
__global__ void __maxnreg__(kTokens == 8 ? 64 : 128)
    multiply_strips_of_rows(const __grid_constant__ StripParams p) {
  extern __shared__ __align__(1024) std::byte shared[];
  const StripFormat format(p.matrix.format);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t full = shared_address(shared) + warp * kSlots * 8;
  const uint32_t rings = shared_address(shared) + kBarrierBytes;
  const uint32_t ring = rings + warp * kSlots * p.slot_bytes;
  const uint32_t rows_at = rings + kStripWarps * kSlots * p.slot_bytes;
  const uint32_t block_bytes = p.rows * kRowPiece, blocks = p.matrix.segment_blocks;
  const StripRun run(p);
  const uint64_t policy = evict_first();
  StripFeed<Codes::kTiles> feed(p, run, warp, format.bytes);
  if (lane == 0) {
    for (uint32_t i = 0; i < kSlots; ++i) init_barrier(full + i * 8, 1);
    fence_barriers();
    for (uint32_t i = 0; i < kSlots; ++i) feed.ask(ring + i * p.slot_bytes, full + i * 8, policy);
  }
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (run.begin >= run.end) return;
  const uint32_t first_segment = run.begin / p.strips;
  const uint32_t segments = (run.end - 1) / p.strips - first_segment + 1;
  StripScales<kTokens> scales;
  scales.load_of_tokens(p, lane);
  load_rows(p, first_segment * blocks, segments * blocks, rows_at);
  __syncthreads();
  uint32_t rows[kTokens / 8];
#pragma unroll
  for (uint32_t n = 0; n < kTokens / 8; ++n) {
    const uint32_t row = min(n * 8 + lane % 8, p.rows - 1);  // what is beyond is not written
    rows[n] = row * kRowPiece + ((lane / 8) ^ (row % 8)) * 16;
  }
  uint32_t slot = 0, parity = 0;
#pragma unroll 1
  for (uint32_t unit = run.begin + warp; unit < run.end; unit += kStripWarps) {
    const uint32_t segment = unit / p.strips, strip = unit - segment * p.strips;
    uint32_t from = rows_at + (segment - first_segment) * blocks * block_bytes;
    float sums[kTokens / 2] = {};
    scales.load_own(p, strip, lane);
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block += Codes::kTiles) {
      const uint32_t at = ring + slot * p.slot_bytes;
      wait(full + slot * 8, parity);
      for_each_tile<Codes::kTiles>(blocks - block, [&](uint32_t tile) {
        add_strip<Codes, kTokens>(format, at + tile * format.bytes, rows, from, lane, sums);
        from += block_bytes;
      });
      __syncwarp();
      if (lane == 0) feed.ask(at, full + slot * 8, policy);
      if (++slot == kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
    write_strip<kTokens>(p, strip, segment, lane, scales, sums);
  }
}

uint32_t slot_bytes(const DeviceTiles& matrix) {
  return matrix.format.chunk() * matrix.format.tile_bytes() / kStripsOfTile;
}

// Rows of two segments, where there are several: a processor's run can touch as many.
size_t shared_bytes(const DeviceTiles& matrix, uint32_t rows) {
  const uint32_t segments = matrix.segments > 1 ? 2 : 1;
  return std::max<size_t>(kFewestSharedBytes,
                          kBarrierBytes + kStripWarps * kSlots * slot_bytes(matrix) +
                              size_t{segments} * matrix.segment_blocks * rows * kRowPiece);
}

// fn(codes) for the kind of codes that a format has.
template <class Fn>
auto with_codes(const TileFormat& format, const Fn& fn) {
  if (format.short_scales) {
    return format.low ? fn.template operator()<ShortCodes<true>>()
                      : fn.template operator()<ShortCodes<false>>();
  }
  if (format.has_table) return fn.template operator()<LongCodes<4, false, true>>();
  if (format.halves) {
    return format.bits == 4 ? fn.template operator()<LongCodes<4, true>>()
                            : fn.template operator()<LongCodes<8, true>>();
  }
  return format.bits == 4 ? fn.template operator()<LongCodes<4, false>>()
                          : fn.template operator()<LongCodes<8, false>>();
}

template <class... Codes>
cudaError_t set_up() {
  cudaError_t error = cudaSuccess;
  const auto take = [&](auto* kernel) {
    const cudaError_t own =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes);
    if (error == cudaSuccess) error = own;
  };
  (take(multiply_strips_of_rows<Codes, 8>), ...);
  (take(multiply_strips_of_rows<Codes, 16>), ...);
  return error;
}

// A tile of codes as one of numbers, a strip by each warp.
template <class Codes>
__global__ void __launch_bounds__(kWarpgroup)
    widen_tiles(const __grid_constant__ DeviceTiles from, std::byte* to) {
  constexpr uint32_t kMostStripBytes = 2048;
  __shared__ __align__(1024) std::byte tile[kTileBytes];
  __shared__ __align__(16) std::byte strips[kStripsOfTile][kMostStripBytes];
  const StripFormat format(from.format);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t number = blockIdx.x, row_block = number / from.input_blocks();
  const std::byte* const own =
      from.blocks + row_block * from.row_block_bytes() +
      from.offset_in_strips(warp, number - row_block * from.input_blocks());
  for (uint32_t i = lane * 16; i < format.bytes; i += kWarp * 16) {
    *reinterpret_cast<uint4*>(strips[warp] + i) = *reinterpret_cast<const uint4*>(own + i);
  }
  __syncwarp();
  const Codes codes(format, shared_address(strips[warp]), lane);
#pragma unroll
  for (uint32_t step = 0; step < kSteps; ++step) {
    uint32_t pairs[4];
    codes.make(format, step, pairs);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = warp * kStripRows + lane / 4 + i % 2 * 8;
      const uint32_t k = step * 16 + lane % 4 * 2 + i / 2 * 8;
      *reinterpret_cast<uint32_t*>(tile + offset_in_tile(row, k)) = pairs[i];
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x * 16; i < kTileBytes; i += kWarpgroup * 16) {
    *reinterpret_cast<uint4*>(to + size_t{number} * kTileBytes + i) =
        *reinterpret_cast<const uint4*>(tile + i);
  }
}

}  // namespace

cudaError_t set_up_strips() {
  return set_up<ShortCodes<true>, ShortCodes<false>, LongCodes<4, false>, LongCodes<4, true>,
                LongCodes<4, false, true>, LongCodes<8, false>, LongCodes<8, true>>();
}

bool fits_strips(const DeviceTiles& matrix, uint32_t rows, uint32_t processors) {
  const uint32_t strips = matrix.row_blocks() * kStripsOfTile;
  // A run of more than two segments has no room for their rows.
  const bool is_short = matrix.segments == 1 || strips * matrix.segments / processors + 1 <= strips;
  return matrix.format.bits < 16 && rows <= 16 && is_short &&
         shared_bytes(matrix, rows) <= kMostSharedBytes;
}

void multiply_strips(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  const StripParams own{params, params.matrix.row_blocks() * kStripsOfTile,
                        slot_bytes(params.matrix)};
  with_codes(params.matrix.format, [&]<class Codes>() {
    launch_overlapped(
        params.rows <= 8 ? multiply_strips_of_rows<Codes, 8> : multiply_strips_of_rows<Codes, 16>,
        processors, kStripWarps * kWarp, shared_bytes(params.matrix, params.rows), stream, own);
  });
}

DeviceTiles widen(const DeviceTiles& matrix, std::byte* to, cudaStream_t stream) {
  DeviceTiles wide = matrix;
  wide.format = {};
  wide.blocks = to;
  const uint32_t tiles = matrix.row_blocks() * matrix.input_blocks();
  with_codes(matrix.format, [&]<class Codes>() {
    widen_tiles<Codes><<<tiles, kWarpgroup, 0, stream>>>(matrix, to);
  });
  static_cast<void>(cudaMemcpyAsync(to + wide.block_bytes(), matrix.blocks + matrix.block_bytes(),
                                    matrix.row_blocks() * kTileRows * sizeof(float),
                                    cudaMemcpyDeviceToDevice, stream));
  return wide;
}

}  // namespace skein::cuda
