// A span of attention over a cache of bfloat16: one thread of a block of threads keeps copies of
// its keys and then its values under way, block after block through a ring in shared memory and on
// into the next span, so that memory never waits for arithmetic; 8 warps multiply.
#pragma once

#include "backend/cuda/spans.cuh"

namespace skein::cuda {

// kTiles of 8 dimensions for each of the 8 warps, kSlots of a ring, kShare blocks of threads on a
// processor. kExact: heads have so many dimensions, not less.
template <uint32_t kTilesOf, uint32_t kSlotsOf, uint32_t kShareOf, bool kExactOf>
struct StreamShape {
  static constexpr uint32_t kTiles = kTilesOf, kSlots = kSlotsOf, kShare = kShareOf;
  static constexpr bool kExact = kExactOf;
  static constexpr uint32_t kReaders = kWarps, kWeightBytes = cuda::kWeightBytes;
  // Keys of a span take a slot each: warps wait for their own alone, and could not tell the round
  // of a slot that was used twice.
  static_assert(kSlots >= kWarps);
  static constexpr uint32_t kStride = kTiles * 64;  // at most
  static constexpr uint32_t kSlotBytes = kBlockTokens * kStride * sizeof(uint16_t);
  static constexpr uint32_t kQueryStride = kStride + 8;
  static constexpr uint32_t kQueryBytes = kQueries * kQueryStride * sizeof(uint16_t);
  static constexpr uint32_t kRingBytes = kSlots * kSlotBytes;
  static constexpr uint32_t kSharedBytes = kRingBytes + kQueryBytes + kWeightBytes + 2 * kSlots * 8;
};

// fn(shape) of the one for a cache whose heads have kMostStride dimensions at most.
template <class Fn>
auto with_shape(const DeviceKv& cache, const Fn& fn) {
  const uint32_t exact = cache.head_dim == cache.stride ? cache.stride : 0;
  if (exact == 64) return fn(StreamShape<1, 15, 3, true>());
  if (exact == 128) return fn(StreamShape<2, 12, 2, true>());
  if (exact == 256) return fn(StreamShape<4, 8, 1, true>());
  if (cache.stride <= 128) return fn(StreamShape<2, 12, 2, false>());
  return fn(StreamShape<4, 8, 1, false>());
}

// Of every shape there is.
template <class Fn>
cudaError_t set_up_shapes(const Fn& fn) {
  cudaError_t error = cudaSuccess;
  for (const uint32_t stride : {64, 128, 256, 16, 144}) {
    DeviceKv cache;
    cache.head_dim = cache.stride = stride;
    const cudaError_t own = with_shape(cache, fn);
    if (error == cudaSuccess) error = own;
  }
  return error;
}

// What the threads of a block have in shared memory.
template <class S>
struct SpanRing {
  uint32_t slots, full, empty;  // addresses
  uint16_t *queries, *weights;

  __device__ explicit SpanRing(std::byte* memory)
      : slots(shared_address(memory)),
        full(slots + S::kRingBytes + S::kQueryBytes + S::kWeightBytes),
        empty(full + S::kSlots * 8),
        queries(reinterpret_cast<uint16_t*>(memory + S::kRingBytes)),
        weights(queries + S::kQueryBytes / sizeof(uint16_t)) {}

  // By all threads.
  __device__ void set_up() const {
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < S::kSlots; ++i) {
        init_barrier(full + i * 8, 1);
        init_barrier(empty + i * 8, S::kReaders);
      }
      fence_barriers();
    }
    __syncthreads();
  }
};

// A slot of the ring, and the parity of its round.
template <uint32_t kSlots>
struct SlotPlace {
  uint32_t slot = 0, parity = 0;

  // `by` is at most as many as there are.
  __device__ SlotPlace after(uint32_t by) const {
    const bool wraps = slot + by >= kSlots;
    return {wraps ? slot + by - kSlots : slot + by, wraps ? parity ^ 1 : parity};
  }
};

// Blocks of the cache that queries read in a span.
struct SpanBlocks {
  uint32_t begin, end;

  __device__ SpanBlocks(const SpanParams& p, const Queries& own, uint32_t span) {
    begin = max(span * kSpan, first_seen(own.position, p.attention.window)) / kBlockTokens;
    end = min(span * kSpan + kSpan - 1, own.last()) / kBlockTokens + 1;
  }
  __device__ uint32_t count() const { return end - begin; }
};

// fn(span) of each that some of the rows see, in order.
template <class Fn>
__device__ void for_each_span(const SpanParams& p, const Queries& own, const Fn& fn) {
#pragma unroll 1
  for (uint32_t span = first_seen(own.position, p.attention.window) / kSpan;
       span <= own.last() / kSpan; ++span) {
    fn(span);
  }
}

// By one thread. before(block), of each.
template <class S, class Before>
__device__ void copy_span(const SpanParams& p, const Queries& own, uint32_t span,
                          const SpanRing<S>& ring, SlotPlace<S::kSlots>& place,
                          const Before& before) {
  const uint64_t policy = evict_normal();
  const uint32_t bytes = static_cast<uint32_t>(p.cache.half_bytes);
  const SpanBlocks blocks(p, own, span);
  const std::byte* head = p.cache.data + own.kv_head * 2 * p.cache.half_bytes;
  for (uint32_t half = 0; half < 2; ++half, head += p.cache.half_bytes) {
    for (uint32_t block = blocks.begin; block < blocks.end; ++block) {
      before(block);
      const uint32_t full = ring.full + place.slot * 8;
      wait(ring.empty + place.slot * 8, place.parity ^ 1);
      arrive_and_expect(full, bytes);
      copy_bulk(ring.slots + place.slot * S::kSlotBytes,
                head + own.blocks[block] * p.cache.block_bytes, bytes, full, policy);
      place = place.after(1);
    }
  }
}

// Where a thread's row of a matrix of 16 rows begins, of which load_matrices takes 16 columns.
__device__ inline uint32_t row_address(const uint16_t* matrix, uint32_t stride, uint32_t lane) {
  return shared_address(matrix + lane % 16 * stride + lane / 16 * 8);
}

// Scores of the 32 tokens whose keys are in a slot.
template <class S>
__device__ void score_slot(const SpanParams& p, uint32_t keys, const uint16_t* queries,
                           uint32_t lane, float (&scores)[4][4]) {
  const uint32_t stride = S::kExact ? S::kStride : p.cache.stride, matrix = lane / 8;
  const uint32_t rows = row_address(queries, S::kQueryStride, lane);
#pragma unroll
  for (uint32_t k = 0; k < S::kStride; k += kGroup) {
    if (!S::kExact && k >= stride) break;
    uint32_t a[4];
    load_matrices(rows + 2 * k, a);
#pragma unroll
    for (uint32_t pair = 0; pair < 2; ++pair) {
      uint32_t b[4];
      const uint32_t slot = (2 * pair + matrix / 2) * 8 + lane % 8;
      load_matrices(keys + 2 * key_index(stride, slot, k + matrix % 2 * 8), b);
      add_products(scores[2 * pair], a, b[0], b[1]);
      add_products(scores[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// How a thread reads values: its row_address of the weights, and where its row of each of the
// warp's tiles lies in a slot.
template <class S>
struct ValueRows {
  uint32_t weights;
  uint32_t tiles;
  uint32_t at[S::kTiles];

  __device__ ValueRows(const SpanParams& p, const uint16_t* of_span, uint32_t warp, uint32_t lane)
      : weights(row_address(of_span, kWeightStride, lane)), tiles(0) {
#pragma unroll
    for (uint32_t i = 0; i < S::kTiles; ++i) {
      const uint32_t d = (warp + i * kWarps) * 8;
      if (d < p.cache.stride) tiles = i + 1;
      at[i] = 2 * value_index(lane / 8 * 8, d + lane % 8);
    }
  }
};

// What a thread multiplies of a block: weights of 2 * 16 tokens, and values of them.
template <class S>
struct ValueFragments {
  uint32_t a[2][4], b[S::kTiles][4];

  // Of the block of that number in the span, whose values are in a slot.
  __device__ void load(const ValueRows<S>& rows, const SpanValues& values, uint32_t number,
                       uint32_t from) {
    load_matrices(rows.weights + number * 2 * kBlockTokens, a[0]);
    load_matrices(rows.weights + number * 2 * kBlockTokens + 2 * kGroup, a[1]);
    const uint32_t token = values.first + number * kBlockTokens;
    const bool hides = !values.all_are_seen(token, kBlockTokens);
#pragma unroll
    for (uint32_t i = 0; i < S::kTiles; ++i) {
      if (!S::kExact && i >= rows.tiles) break;
      load_matrices(from + rows.at[i], b[i]);
      for (uint32_t j = 0; j < 4 && hides; ++j) {
        b[i][j] = values.seen_of(b[i][j], token + j * 8 + values.lane % 4 * 2);
      }
    }
  }
  __device__ void add(const ValueRows<S>& rows, const SpanValues& values, uint32_t number,
                      float (&sums)[S::kTiles][4]) const {
    const uint32_t token = values.first + number * kBlockTokens;
    const bool all_see = values.all_see(token, kBlockTokens);
#pragma unroll
    for (uint32_t i = 0; i < 2 * S::kTiles; ++i) {
      const uint32_t half = i / S::kTiles, tile = i % S::kTiles;
      if (!S::kExact && tile >= rows.tiles) continue;
      const uint32_t b0 = b[tile][2 * half], b1 = b[tile][2 * half + 1];
      if (all_see) {
        add_products(sums[tile], a[half], b0, b1);
      } else {
        values.add(sums[tile], a[half], b0, b1, number * (kBlockTokens / kGroup) + half);
      }
    }
  }
};

// What a span gave each query but for its values, in shared memory.
struct SpanSoftmax {
  float largest[kQueries], sums[kQueries];
};

// The weighted values of a span, by the 8 warps; queries are in the ring's. `place` is that of the
// first slot, and then that of the next span's.
template <class S>
__device__ void sum_span(const SpanParams& p, const Queries& own, uint32_t span,
                         const SpanRing<S>& ring, SlotPlace<S::kSlots>& place, SpanSoftmax& softmax,
                         float (&sums)[S::kTiles][4]) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t first = span * kSpan, first_block = first / kBlockTokens;
  const SpanBlocks blocks(p, own, span);
  const auto wait_for = [&](const SlotPlace<S::kSlots>& at) {
    wait(ring.full + at.slot * 8, at.parity);
    return ring.slots + at.slot * S::kSlotBytes;
  };
  float scores[4][4] = {};
  const uint32_t block = first_block + warp;
  const bool is_seen = block >= blocks.begin && block < blocks.end;
  if (is_seen) {
    const auto own_place = place.after(block - blocks.begin);
    const uint32_t keys = wait_for(own_place);
    score_slot<S>(p, keys, ring.queries, lane, scores);
    __syncwarp();
    if (lane < kWarps) arrive(ring.empty + own_place.slot * 8);  // for all warps
  }
  place = place.after(blocks.count());
  weigh(p, own, is_seen, first, warp, lane, scores, ring.weights, softmax.largest);
  sync_multipliers();
  sum_weights(own, ring.weights, softmax.sums);
  const SpanValues values{p, own, first, lane};
  const ValueRows<S> rows(p, ring.weights, warp, lane);
#pragma unroll 1
  for (uint32_t b = blocks.begin; b < blocks.end; ++b) {
    const uint32_t from = wait_for(place);
    ValueFragments<S> fragments;
    fragments.load(rows, values, b - first_block, from);
    fragments.add(rows, values, b - first_block, sums);
    __syncwarp();
    if (lane == 0) arrive(ring.empty + place.slot * 8);
    place = place.after(1);
  }
  sync_multipliers();  // nobody reads weights, and their sums are there
}

}  // namespace skein::cuda
