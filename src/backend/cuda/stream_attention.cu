// Attention over a cache of bfloat16. One thread of a block of threads keeps copies of the keys and
// then the values of a span under way, block after block through a ring in shared memory and on
// into the next item, so that memory never waits for arithmetic; 8 warps multiply. Blocks of the
// cache that no row of the step writes are copied before the kernel before has ended.
#include "backend/cuda/spans.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kMostStride = 256;

// kTiles of 8 dimensions for each of the 8 warps, kSlots of a ring, kShare blocks of threads on a
// processor.
template <uint32_t kTilesOf, uint32_t kSlotsOf, uint32_t kShareOf>
struct StreamShape {
  static constexpr uint32_t kTiles = kTilesOf, kSlots = kSlotsOf, kShare = kShareOf;
  // Keys of an item take a slot each: warps wait for their own alone, and could not tell the round
  // of a slot that was used twice.
  static_assert(kSlots >= kWarps);
  static constexpr uint32_t kStride = kTiles * 64;  // at most
  static constexpr uint32_t kSlotBytes = kBlockTokens * kStride * sizeof(uint16_t);
  static constexpr uint32_t kQueryStride = kStride + 8;
  static constexpr uint32_t kQueryBytes = kQueries * kQueryStride * sizeof(uint16_t);
  static constexpr uint32_t kWeightBytes = kQueries * kWeightStride * sizeof(uint16_t);
  // Weights take the place of the queries that they were made with.
  static constexpr uint32_t kOwnBytes = kQueryBytes > kWeightBytes ? kQueryBytes : kWeightBytes;
  static constexpr uint32_t kSharedBytes = kSlots * kSlotBytes + kOwnBytes + 2 * kSlots * 8;
};

// The items of a block of threads in turn, the same for who copies and who multiplies. Spans are
// outermost: long items come first, and heads of a row share its part of the record.
class Items {
 public:
  __device__ Items(const SpanParams& p, const dim3& all) : p_(p), all_(all) {}

  // False: there are no more.
  __device__ bool next(SpanItem& item, Queries& own) {
    for (;;) {
      if (row_ >= end_ && !find_unit()) return false;
      item = {row_, heads_, span_};
      const uint32_t place = p_.step.places[row_] % p_.rows_each;
      if (place != 0) {
        row_ += min(p_.rows_each - place, p_.step.rows_left[row_]);
        continue;
      }
      const bool is_one = find_queries(p_, item, own);
      row_ += own.rows;
      if (is_one) return true;
    }
  }

 private:
  __device__ bool find_unit() {
    if (index_ >= all_.x * all_.y * all_.z) return false;
    heads_ = index_ % all_.y;
    span_ = index_ / all_.y / all_.x;
    row_ = index_ / all_.y % all_.x * p_.rows_of_unit;
    end_ = min(row_ + p_.rows_of_unit, p_.q.rows);
    index_ += gridDim.x;
    return true;
  }

  const SpanParams& p_;
  const dim3& all_;
  uint32_t index_ = blockIdx.x, row_ = 0, end_ = 0, heads_ = 0, span_ = 0;
};

// Blocks of the cache that an item reads, and the first that the step writes.
struct Blocks {
  uint32_t begin, end, written;

  __device__ Blocks(const SpanParams& p, const SpanItem& item, const Queries& own) {
    const uint32_t first = (p.first_span + item.span) * kSpan;
    begin = max(first, first_seen(own.position, p.attention.window)) / kBlockTokens;
    end = min(first + kSpan - 1, own.last()) / kBlockTokens + 1;
    written = (own.position - p.step.places[own.first_row]) / kBlockTokens;
  }
  __device__ uint32_t count() const { return end - begin; }
};

struct SlotRing {
  uint32_t slots, full, empty;  // addresses
};

// By one thread.
template <class S>
__device__ void copy_blocks(const SpanParams& p, const dim3& all, const SlotRing& ring) {
  const uint64_t policy = evict_normal();
  const uint32_t bytes = static_cast<uint32_t>(p.cache.half_bytes);
  uint32_t slot = 0, parity = 0;
  bool has_waited = false;
  Items items(p, all);
  SpanItem item;
  for (Queries own; items.next(item, own);) {
    const Blocks blocks(p, item, own);
    const std::byte* const head = p.cache.data + own.kv_head * 2 * p.cache.half_bytes;
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t block = blocks.begin; block < blocks.end; ++block) {
        if (!has_waited && block >= blocks.written) {
          wait_for_kernel_before();
          has_waited = true;
        }
        const uint32_t full = ring.full + slot * 8;
        wait(ring.empty + slot * 8, parity ^ 1);
        arrive_and_expect(full, bytes);
        copy_bulk(ring.slots + slot * S::kSlotBytes,
                  head + own.blocks[block] * p.cache.block_bytes + half * p.cache.half_bytes, bytes,
                  full, policy);
        if (++slot == S::kSlots) {
          slot = 0;
          parity ^= 1;
        }
      }
    }
  }
  if (!has_waited) wait_for_kernel_before();
}

// Where a thread's row of a matrix of 16 rows begins, of which load_matrices takes 16 columns.
__device__ uint32_t row_address(const uint16_t* matrix, uint32_t stride, uint32_t lane) {
  return shared_address(matrix + lane % 16 * stride + lane / 16 * 8);
}

// Scores of the 32 tokens whose keys are in a slot.
__device__ void score_slot(const SpanParams& p, uint32_t keys, const uint16_t* queries,
                           uint32_t query_stride, uint32_t lane, float (&scores)[4][4]) {
  const uint32_t stride = p.cache.stride, matrix = lane / 8;
  const uint32_t rows = row_address(queries, query_stride, lane);
#pragma unroll 4
  for (uint32_t k = 0; k < stride; k += kGroup) {
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

// Adds the weighted values of a block of the cache, the one of that number in the span, to those of
// the warp's dimensions. change(b), of what is read.
template <class S, class Change, class Add>
__device__ void add_block(const ValueRows<S>& rows, uint32_t number, uint32_t from,
                          const Change& change, const Add& add, float (&sums)[S::kTiles][4]) {
  uint32_t a[2][4];
  load_matrices(rows.weights + number * 2 * kBlockTokens, a[0]);
  load_matrices(rows.weights + number * 2 * kBlockTokens + 2 * kGroup, a[1]);
#pragma unroll
  for (uint32_t i = 0; i < S::kTiles; ++i) {
    if (i >= rows.tiles) break;
    uint32_t b[4];
    load_matrices(from + rows.at[i], b);
    change(b);
    add(sums[i], a[0], b[0], b[1], 0);
    add(sums[i], a[1], b[2], b[3], 1);
  }
}

// Of a block that every query sees whole.
template <class S>
__device__ void add_seen_block(const ValueRows<S>& rows, uint32_t number, uint32_t from,
                               float (&sums)[S::kTiles][4]) {
  add_block(
      rows, number, from, [](uint32_t(&)[4]) {},
      [](float(&own)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1, uint32_t) {
        add_products(own, a, b0, b1);
      },
      sums);
}

// Of one that some of them do not.
template <class S>
__device__ void add_part_of_block(const ValueRows<S>& rows, const SpanValues& values,
                                  uint32_t number, uint32_t from, float (&sums)[S::kTiles][4]) {
  const uint32_t token = values.first + number * kBlockTokens;
  const bool all_are_seen = values.all_are_seen(token, kBlockTokens);
  add_block(
      rows, number, from,
      [&](uint32_t(&b)[4]) {
        for (uint32_t j = 0; j < 4 && !all_are_seen; ++j) {
          b[j] = values.seen_of(b[j], token + j * 8 + values.lane % 4 * 2);
        }
      },
      [&](float(&own)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1, uint32_t half) {
        values.add(own, a, b0, b1, number * (kBlockTokens / kGroup) + half);
      },
      sums);
}

// What the 8 warps share beside the ring.
struct SpanShared {
  uint16_t* queries;
  uint16_t* weights;
  float* largest;
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

// One item. `place` is that of its first slot, and then that of the next item's.
template <class S>
__device__ void attend_item(const SpanParams& p, const SpanItem& item, const Queries& own,
                            const SlotRing& ring, const SpanShared& shared,
                            SlotPlace<S::kSlots>& place) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t first = (p.first_span + item.span) * kSpan, first_block = first / kBlockTokens;
  const Blocks blocks(p, item, own);
  const auto wait_for = [&](const SlotPlace<S::kSlots>& at) {
    wait(ring.full + at.slot * 8, at.parity);
    return ring.slots + at.slot * S::kSlotBytes;
  };
  sync_multipliers();  // nobody reads the weights of the item before
  load_queries(p, own, shared.queries, S::kQueryStride);
  sync_multipliers();
  float scores[4][4] = {};
  const uint32_t block = first_block + warp;
  const bool is_seen = block >= blocks.begin && block < blocks.end;
  if (is_seen) {
    const auto own_place = place.after(block - blocks.begin);
    score_slot(p, wait_for(own_place), shared.queries, S::kQueryStride, lane, scores);
    __syncwarp();
    if (lane < kWarps) arrive(ring.empty + own_place.slot * 8);  // for all warps
  }
  place = place.after(blocks.count());
  weigh(p, own, is_seen, first, warp, lane, scores, shared.weights, shared.largest);
  sync_multipliers();
  write_weights(p, own, item.span, shared.weights, shared.largest);
  const SpanValues values{p, own, first, lane};
  const ValueRows<S> rows(p, shared.weights, warp, lane);
  float sums[S::kTiles][4] = {};
#pragma unroll 1
  for (uint32_t b = blocks.begin; b < blocks.end; ++b) {
    const uint32_t from = wait_for(place);
    if (values.all_see(b * kBlockTokens, kBlockTokens)) {
      add_seen_block(rows, b - first_block, from, sums);
    } else {
      add_part_of_block(rows, values, b - first_block, from, sums);
    }
    __syncwarp();
    if (lane == 0) arrive(ring.empty + place.slot * 8);
    place = place.after(1);
  }
  const ValuePlaces places(p, own, item.span, lane);
#pragma unroll
  for (uint32_t i = 0; i < S::kTiles; ++i) places.write((warp + i * kWarps) * 8, lane, sums[i]);
}

template <class S>
__global__ void __launch_bounds__(kThreads + kWarp, S::kShare)
    attend_in_ring(const __grid_constant__ SpanParams p, const dim3 all) {
  extern __shared__ __align__(1024) std::byte ring_memory[];
  __shared__ float largest[kQueries];
  std::byte* const queries = ring_memory + S::kSlots * S::kSlotBytes;
  const SpanShared shared{reinterpret_cast<uint16_t*>(queries),
                          reinterpret_cast<uint16_t*>(queries), largest};
  const uint32_t slots = shared_address(ring_memory);
  const uint32_t full = slots + S::kSlots * S::kSlotBytes + S::kOwnBytes;
  const SlotRing ring{slots, full, full + S::kSlots * 8};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kSlots; ++i) {
      init_barrier(ring.full + i * 8, 1);
      init_barrier(ring.empty + i * 8, kWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  let_next_kernel_begin();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) copy_blocks<S>(p, all, ring);
    return;
  }
  wait_for_kernel_before();
  SlotPlace<S::kSlots> place;
  Items items(p, all);
  SpanItem item;
  for (Queries own; items.next(item, own);) attend_item<S>(p, item, own, ring, shared, place);
}

template <class S>
void launch(const SpanParams& params, dim3 all, const SpanBatch& batch, cudaStream_t stream) {
  const uint32_t items = all.x * all.y * all.z;
  const uint32_t blocks =
      batch.processors == 0 ? items : std::min(items, batch.processors * S::kShare);
  launch_overlapped(attend_in_ring<S>, blocks, kThreads + kWarp, S::kSharedBytes, stream, params,
                    all);
}

template <class S>
cudaError_t set_up() {
  return cudaFuncSetAttribute(attend_in_ring<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              S::kSharedBytes);
}

using Narrow = StreamShape<1, 16, 3>;
using Usual = StreamShape<2, 12, 2>;
using Wide = StreamShape<4, 8, 1>;

}  // namespace

cudaError_t set_up_attention() {
  for (const cudaError_t error : {set_up<Narrow>(), set_up<Usual>(), set_up<Wide>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool is_streamed(const DeviceKv& cache) {
  return cache.type == KvType::kBf16 && cache.stride <= kMostStride;
}

void attend_streamed(const SpanParams& params, dim3 grid, const SpanBatch& batch,
                     cudaStream_t stream) {
  grid.x = groups_of(grid.x, params.rows_of_unit);
  if (params.cache.stride <= Narrow::kStride) return launch<Narrow>(params, grid, batch, stream);
  if (params.cache.stride <= Usual::kStride) return launch<Usual>(params, grid, batch, stream);
  launch<Wide>(params, grid, batch, stream);
}

}  // namespace skein::cuda
