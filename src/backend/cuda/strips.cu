// Few rows times codes in strips. Each warp feeds itself: it asks for the next blocks of its strip
// while it multiplies the last ones, and meets the others only where rows come into shared memory.
// All processors get the same number of strips, or one less.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product_params.h"
#include "backend/cuda/strips.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kStripWarps = 16, kSlots = 2;
constexpr uint32_t kBlockOfStrips = kTileRows / kStripRows * kStripBytes;
constexpr uint32_t kRowPiece = kTileInputs * sizeof(uint16_t);
constexpr uint32_t kRingBytes = kStripWarps * kSlots * kStripBytes;
constexpr uint32_t kBarrierBytes = kStripWarps * kSlots * 8;
constexpr uint32_t kMostSharedBytes = 232448;

struct StripParams : ProductParams {
  uint32_t strips;          // of 16 outputs
  uint32_t segment_blocks;  // of 256 inputs
};

// Strips of segments, one after the other.
struct StripRun {
  uint32_t begin, end;

  __device__ explicit StripRun(const StripParams& p) {
    const uint64_t all = uint64_t{p.strips} * p.matrix.segments;
    begin = static_cast<uint32_t>(blockIdx.x * all / gridDim.x);
    end = static_cast<uint32_t>((blockIdx.x + 1) * all / gridDim.x);
  }
};

// What a warp asks for: the blocks of its strips, in order.
class StripFeed {
 public:
  __device__ StripFeed(const StripParams& p, const StripRun& run, uint32_t warp)
      : p_(p), end_(run.end), unit_(run.begin + warp) {
    find();
  }
  // By one thread.
  __device__ void ask(uint32_t slot, uint32_t full, uint64_t policy) {
    if (unit_ >= end_) return;
    arrive_and_expect(full, kStripBytes);
    copy_bulk(slot, from_, kStripBytes, full, policy);
    from_ += kBlockOfStrips;
    if (++block_ < p_.segment_blocks) return;
    block_ = 0;
    unit_ += kStripWarps;
    find();
  }

 private:
  __device__ void find() {
    const uint32_t segment = unit_ / p_.strips, strip = unit_ - segment * p_.strips;
    const size_t blocks = size_t{strip / 4} * p_.matrix.segments * p_.segment_blocks +
                          size_t{segment} * p_.segment_blocks;
    from_ = p_.matrix.blocks + blocks * kBlockOfStrips + strip % 4 * kStripBytes;
  }

  const StripParams& p_;
  const uint32_t end_;
  uint32_t unit_, block_ = 0;
  const std::byte* from_;
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

// A block of a strip, 256 inputs. `rows` are the thread's addresses in the rows of the first 64.
template <uint32_t kTokens, bool kLow>
__device__ void add_strip(uint32_t strip, const uint32_t (&rows)[kTokens / 8], uint32_t from,
                          uint32_t block_bytes, uint32_t lane, float (&sums)[kTokens / 2]) {
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint4 scales = load_shared(strip + kStripCodes + lane / 4 * 32 + half * 16);
    const uint32_t of_inputs[4] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t tile = half * 2 + i;
      const uint4 codes = load_shared(strip + tile * (kStripCodes / 4) + lane * 16);
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
      uint32_t b[kTokens / 8][8];
#pragma unroll
      for (uint32_t n = 0; n < kTokens / 8; ++n) {
        const uint32_t at = from + tile * block_bytes;
        load_matrices(at + rows[n], b[n]);
        load_matrices(at + (rows[n] ^ 64), b[n] + 4);
      }
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step) {
        uint32_t a[4];
        make_fragment<kLow>(words[step], StripScales<kLow>(of_inputs[i * 2 + step / 2]), a);
#pragma unroll
        for (uint32_t n = 0; n < kTokens / 8; ++n) {
          add_fragments(sums + n * 4, a, b[n][step * 2], b[n][step * 2 + 1]);
        }
      }
    }
  }
}

template <uint32_t kTokens>
__device__ void write_strip(const StripParams& p, uint32_t strip, uint32_t segment, uint32_t lane,
                            const float (&sums)[kTokens / 2]) {
  const auto* const scales =
      reinterpret_cast<const float*>(p.matrix.blocks + p.matrix.block_bytes());
#pragma unroll
  for (uint32_t j = 0; j < kTokens / 2; ++j) {
    const uint32_t output = strip * kStripRows + lane / 4 + j / 2 % 2 * 8;
    const uint32_t token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (token >= p.rows || output >= p.matrix.outputs) continue;
    if (p.sums != nullptr) {
      p.sums[(size_t{segment} * p.rows + token) * p.matrix.outputs + output] = sums[j];
      continue;
    }
    const float value = sums[j] * scales[output] * p.x_scales[token];
    p.out[token * p.out_stride + output] = p.bias == nullptr ? value : value + p.bias[output];
  }
}

template <uint32_t kTokens, bool kLow>
__global__ void __launch_bounds__(kStripWarps* kWarp, kTokens == 8 ? 2 : 1)
    multiply_strips_of_rows(const __grid_constant__ StripParams p) {
  extern __shared__ __align__(1024) std::byte shared[];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t base = shared_address(shared), ring = base + warp * kSlots * kStripBytes;
  const uint32_t full = base + kRingBytes + warp * kSlots * 8;
  const uint32_t rows_at = base + kRingBytes + kBarrierBytes;
  const uint32_t block_bytes = p.rows * kRowPiece;
  const StripRun run(p);
  const uint64_t policy = evict_first();
  StripFeed feed(p, run, warp);
  if (lane == 0) {
    for (uint32_t i = 0; i < kSlots; ++i) init_barrier(full + i * 8, 1);
    fence_barriers();
    for (uint32_t i = 0; i < kSlots; ++i) feed.ask(ring + i * kStripBytes, full + i * 8, policy);
  }
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (run.begin >= run.end) return;
  const uint32_t first_segment = run.begin / p.strips;
  const uint32_t segments = (run.end - 1) / p.strips - first_segment + 1;
  load_rows(p, first_segment * p.matrix.segment_blocks, segments * p.matrix.segment_blocks,
            rows_at);
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
    uint32_t from = rows_at + (segment - first_segment) * p.matrix.segment_blocks * block_bytes;
    float sums[kTokens / 2] = {};
#pragma unroll 1
    for (uint32_t block = 0; block < p.segment_blocks; ++block) {
      wait(full + slot * 8, parity);
      add_strip<kTokens, kLow>(ring + slot * kStripBytes, rows, from, block_bytes, lane, sums);
      from += 4 * block_bytes;
      __syncwarp();
      if (lane == 0) feed.ask(ring + slot * kStripBytes, full + slot * 8, policy);
      if (++slot == kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
    write_strip<kTokens>(p, strip, segment, lane, sums);
  }
}

// Rows of two segments, where there are several: a processor's run can touch as many.
size_t shared_bytes(const DeviceTiles& matrix, uint32_t rows) {
  const uint32_t segments = matrix.segments > 1 ? 2 : 1;
  return kRingBytes + kBarrierBytes + size_t{segments} * matrix.segment_blocks * rows * kRowPiece;
}

template <uint32_t kTokens, bool kLow>
cudaError_t set_up() {
  return cudaFuncSetAttribute(multiply_strips_of_rows<kTokens, kLow>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes);
}

// A tile of codes as one of numbers.
template <uint32_t kBits>
__global__ void __launch_bounds__(kWarpgroup)
    widen_tiles(const __grid_constant__ DeviceTiles from, std::byte* to) {
  __shared__ __align__(1024) std::byte tile[kTileBytes];
  __shared__ __align__(16) std::byte codes[kTileRows * kTileInputs + 4096];
  const size_t number = blockIdx.x;
  const uint32_t made = shared_address(tile);
  if (from.format.strips) {
    const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::byte* const strip = from.blocks + number / 4 * kBlockOfStrips + warp * kStripBytes;
    const uint32_t quarter = number % 4;
    StripPart part;
    part.codes = reinterpret_cast<const uint4*>(strip + quarter * (kStripCodes / 4))[lane];
    part.scales = reinterpret_cast<const uint2*>(strip + kStripCodes + lane / 4 * 32)[quarter];
    from.format.low ? put_strip<true>(part, warp, lane, made)
                    : put_strip<false>(part, warp, lane, made);
  } else {
    const uint32_t bytes = from.format.tile_bytes();
    if constexpr (kBits == 4) load_table(from.format);
    for (uint32_t i = threadIdx.x * 16; i < bytes; i += kWarpgroup * 16) {
      *reinterpret_cast<uint4*>(codes + i) =
          *reinterpret_cast<const uint4*>(from.blocks + number * bytes + i);
    }
    __syncthreads();
    make_tile<kBits>(shared_address(codes), from.format, made);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x * 16; i < kTileBytes; i += kWarpgroup * 16) {
    *reinterpret_cast<uint4*>(to + number * kTileBytes + i) =
        *reinterpret_cast<const uint4*>(tile + i);
  }
}

}  // namespace

cudaError_t set_up_strips() {
  for (const cudaError_t error :
       {set_up<8, true>(), set_up<8, false>(), set_up<16, true>(), set_up<16, false>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool fits_strips(const DeviceTiles& matrix, uint32_t rows, uint32_t processors) {
  const uint32_t strips = matrix.row_blocks() * (kTileRows / kStripRows);
  // A run of more than two segments has no room for their rows.
  const bool is_short = matrix.segments == 1 || strips * matrix.segments / processors + 1 <= strips;
  return matrix.format.strips && rows <= 16 && is_short &&
         shared_bytes(matrix, rows) <= kMostSharedBytes;
}

void multiply_strips(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
  const StripParams own{params, params.matrix.row_blocks() * (kTileRows / kStripRows),
                        params.matrix.segment_blocks / (kStripInputs / kTileInputs)};
  const bool low = params.matrix.format.low;
  const auto kernel =
      params.rows <= 8
          ? (low ? multiply_strips_of_rows<8, true> : multiply_strips_of_rows<8, false>)
          : (low ? multiply_strips_of_rows<16, true> : multiply_strips_of_rows<16, false>);
  launch_overlapped(kernel, processors, kStripWarps * kWarp,
                    shared_bytes(params.matrix, params.rows), stream, own);
}

DeviceTiles widen(const DeviceTiles& matrix, std::byte* to, cudaStream_t stream) {
  DeviceTiles wide = matrix;
  wide.format = {};
  wide.blocks = to;
  const uint32_t tiles = matrix.row_blocks() * matrix.input_blocks();
  const auto kernel = matrix.format.bits == 4 ? widen_tiles<4> : widen_tiles<8>;
  kernel<<<tiles, kWarpgroup, 0, stream>>>(matrix, to);
  static_cast<void>(cudaMemcpyAsync(to + wide.block_bytes(), matrix.blocks + matrix.block_bytes(),
                                    matrix.row_blocks() * kTileRows * sizeof(float),
                                    cudaMemcpyDeviceToDevice, stream));
  return wide;
}

}  // namespace skein::cuda
