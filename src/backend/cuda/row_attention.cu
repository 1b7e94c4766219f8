// All of attention, in one kernel, for rows that are sequences of their own: a block of threads
// takes the heads of a row that share one of the cache. It makes them out of the product whose
// outputs they are, and goes through the spans in order. The row's own key and value reach the
// multiplication without memory, so all that is copied is there before the kernel before has ended.
#include "backend/cuda/heads.cuh"
#include "backend/cuda/span_merge.cuh"
#include "backend/cuda/span_ring.cuh"

namespace skein::cuda {
namespace {

// What the 8 warps share beside the ring.
template <class S>
struct RowShared {
  SpanSoftmax softmax;
  float angles[S::kStride];
  alignas(8) uint16_t token[2][S::kStride];  // the row's own key and value
  uint32_t largest_of_row;
};

// Those of a block of threads.
__device__ inline Queries queries_of(const SpanParams& p) {
  const uint32_t row = blockIdx.x / p.cache.heads, head = blockIdx.x - row * p.cache.heads;
  return {row,
          1,
          head * p.group,
          p.group,
          RowOfQuery{0},
          p.step.positions[row],
          p.step.blocks + p.step.first_blocks[row],
          head};
}

// fn(span) of each that a row sees, in order.
template <class Fn>
__device__ void for_each_span(const SpanParams& p, const Queries& own, const Fn& fn) {
#pragma unroll 1
  for (uint32_t span = first_seen(own.position, p.attention.window) / kSpan;
       span <= own.position / kSpan; ++span) {
    fn(span);
  }
}

// The heads of a row: its queries, then its key and its value, which are two more.
struct RowHeads {
  const SpanParams& p;
  const Queries& own;

  __device__ uint32_t count() const { return own.heads + 2; }
  __device__ uint32_t kind(uint32_t head) const {
    return head < own.heads ? 0 : head - own.heads + 1;
  }
  __device__ uint32_t column(uint32_t head) const {
    return (head < own.heads ? own.first_head + head : own.kv_head) * p.cache.head_dim;
  }
};

// What make_heads will read that is there before the product is.
__device__ inline void fetch_for_heads(const SpanParams& p, const Queries& own) {
  const RowHeads heads{p, own};
  for (uint32_t i = threadIdx.x * 8; i < heads.count() * p.cache.head_dim; i += kThreads * 8) {
    const uint32_t head = i / p.cache.head_dim, d = i - head * p.cache.head_dim;
    fetch_scales(p.heads.sums, p.heads.first_outputs[heads.kind(head)] + heads.column(head) + d);
  }
}

// Four numbers of a head, from d on, turned; `head` is all of it, in shared memory.
__device__ inline Outputs<4> turned(const DeviceHeads& heads, const float* head,
                                    const float* angles, uint32_t d) {
  Outputs<4> out = *reinterpret_cast<const Outputs<4>*>(head + d);
  const uint32_t half = heads.angles.width / 2;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (d + i >= 2 * half) break;
    const bool halves = heads.layout == RopeLayout::kHalves;
    const bool is_second = halves ? d + i >= half : i % 2 == 1;
    const uint32_t j = halves ? d + i - (is_second ? half : 0) : (d + i) / 2;
    const uint32_t other = halves ? (is_second ? d + i - half : d + i + half) : (d + i) ^ 1;
    const float product = head[other] * angles[half + j];
    out.at[i] = arithmetic::fma(out.at[i], angles[j], is_second ? product : -product);
  }
  return out;
}

// Heads out of their product, turned, rounded, and stored where they belong; four numbers a thread.
template <class S>
__device__ void make_heads(const SpanParams& p, const Queries& own, const SpanRing<S>& ring,
                           RowShared<S>& shared) {
  const uint32_t dim = S::kExact ? S::kStride : p.cache.head_dim, fours = dim / 4;
  const uint32_t row = own.first_row;
  const RowHeads heads{p, own};
  const DeviceHeads& from = p.heads;
  float* const made = reinterpret_cast<float*>(ring.weights);  // of which there are none yet
  const bool has_angle = threadIdx.x < from.angles.width;
  const float angle = has_angle ? row_at(from.angles, row)[threadIdx.x] : 0.0F;
  const RowSlot place(p.step, row);
  for (uint32_t i = threadIdx.x; i < heads.count() * fours; i += kThreads) {
    const uint32_t head = i / fours, kind = heads.kind(head);
    const uint32_t column = heads.column(head) + (i - head * fours) * 4;
    *reinterpret_cast<Outputs<4>*>(made + 4 * i) =
        from.sums.planes == nullptr
            ? load_outputs<4>(row_at(from.rows[kind], row) + column)
            : product_at<4>(from.sums, row, from.first_outputs[kind] + column);
  }
  if (has_angle) shared.angles[threadIdx.x] = angle;
  sync_multipliers();
  for (uint32_t i = threadIdx.x; i < heads.count() * fours; i += kThreads) {
    const uint32_t head = i / fours, d = (i - head * fours) * 4, kind = heads.kind(head);
    const Outputs<4> x = kind == 2 ? *reinterpret_cast<const Outputs<4>*>(made + 4 * i)
                                   : turned(from, made + head * dim, shared.angles, d);
    *reinterpret_cast<Outputs<4>*>(row_at(from.rows[kind], row) + heads.column(head) + d) = x;
    uint16_t rounded[4];
    for (uint32_t k = 0; k < 4; ++k) rounded[k] = arithmetic::round_to_bf16(x.at[k]);
    uint16_t* const to = kind == 0 ? ring.queries + head * S::kQueryStride : shared.token[kind - 1];
    *reinterpret_cast<uint2*>(to + d) = {pair_of(rounded[0], rounded[1]),
                                         pair_of(rounded[2], rounded[3])};
    if (kind == 0 || !place.writes) continue;
    const Half<KvType::kBf16> half =
        kind == 1 ? keys_of<KvType::kBf16>(p.cache, place.block, own.kv_head)
                  : values_of<KvType::kBf16>(p.cache, place.block, own.kv_head);
    auto* const cells = reinterpret_cast<uint16_t*>(half.data);
    for (uint32_t k = 0; k < 4; ++k) {
      cells[kind == 1 ? key_index(p.cache.stride, place.slot, d + k)
                      : value_index(place.slot, d + k)] = rounded[k];
    }
  }
  sync_multipliers();
}

// A part of the row's own key or value into the slot of its block, by the warp that is about to
// read it: dimensions [begin, end).
template <class Index>
__device__ void put_token(uint32_t slot, const uint16_t* token, uint32_t begin, uint32_t end,
                          const Index& index) {
  for (uint32_t d = begin + threadIdx.x % kWarp; d < end; d += kWarp) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(slot + 2 * index(d)), "h"(token[d]) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the slot is filled anew
  __syncwarp();
}

// What all spans gave queries lane / 4 and + 8, in a thread's dimensions.
template <class S>
struct WholeRow {
  float values[S::kTiles][4];
  RunningSoftmax softmax[2];

  __device__ void add(bool is_first, const SpanSoftmax& of_span, uint32_t lane,
                      const float (&sums)[S::kTiles][4]) {
    for (uint32_t i = 0; i < 2; ++i) {
      softmax[i].add(is_first, of_span.largest[lane / 4 + i * 8], of_span.sums[lane / 4 + i * 8]);
    }
#pragma unroll
    for (uint32_t j = 0; j < 4 * S::kTiles; ++j) {
      float& value = values[j / 4][j % 4];
      value = softmax[j / 2 % 2].sum(is_first, value, sums[j / 4][j % 4]);
    }
  }
  // The largest of a thread's magnitudes.
  __device__ uint32_t write(const SpanParams& p, const Queries& own, uint32_t warp, uint32_t lane) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t query = lane / 4 + i * 8;
      if (query >= own.heads) break;
      softmax[i].end(p.attention.sinks, own.first_head + query);
      float* const out = row_at(p.out, own.first_row) + (own.first_head + query) * p.cache.head_dim;
#pragma unroll
      for (uint32_t tile = 0; tile < S::kTiles; ++tile) {
        const uint32_t d = (warp + tile * kWarps) * 8 + lane % 4 * 2;
        if (d >= p.cache.head_dim) break;
        const float2 pair{softmax[i].result(values[tile][2 * i]),
                          softmax[i].result(values[tile][2 * i + 1])};
        *reinterpret_cast<float2*>(out + d) = pair;
        largest = max(largest, arithmetic::bits_of_float(pair.x) & 0x7fffffffU);
        largest = max(largest, arithmetic::bits_of_float(pair.y) & 0x7fffffffU);
      }
    }
    return largest;
  }
};

// Who is the last with its heads of a row makes tiles of it.
template <class S>
__device__ void make_tiles_of_row(const SpanParams& p, uint32_t row, uint32_t largest,
                                  RowShared<S>& shared) {
  uint32_t* const done = p.marks + 2 * row;
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % kWarp == 0) atomicMax(done + 1, largest);
  sync_multipliers();
  if (threadIdx.x == 0) {
    __threadfence();
    const bool is_last = atomicAdd(done, 1) + 1 == p.cache.heads;
    __threadfence();
    shared.largest_of_row = is_last ? __ldcg(done + 1) : UINT32_MAX;
    if (is_last) done[0] = done[1] = 0;
  }
  sync_multipliers();
  if (shared.largest_of_row == UINT32_MAX) return;
  const int32_t exponent = arithmetic::f16_exponent(shared.largest_of_row);
  const float scale = arithmetic::power_of_two(exponent);
  if (threadIdx.x == 0) p.tiles.scales[row] = arithmetic::power_of_two(-exponent);
#pragma unroll 4
  for (uint32_t k = 4 * threadIdx.x; k < p.tiles.input_blocks * kTileInputs; k += 4 * kThreads) {
    float4 x{};
    if (k < p.out.width) x = __ldcg(reinterpret_cast<const float4*>(row_at(p.out, row) + k));
    std::byte* const block =
        p.tiles.data + size_t{k / kTileInputs} * p.tiles.rows * (2 * kTileInputs);
    *reinterpret_cast<uint2*>(block + offset_in_tile(row, k % kTileInputs)) = {
        pair_of(f16_of(x.x * scale), f16_of(x.y * scale)),
        pair_of(f16_of(x.z * scale), f16_of(x.w * scale))};
  }
}

template <class S>
__device__ void attend_unit(const SpanParams& p, const Queries& own, const SpanRing<S>& ring,
                            RowShared<S>& shared) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, dim = p.cache.head_dim;
  make_heads(p, own, ring, shared);
  // The block with the row's own token, where that is stored.
  const uint32_t slot = own.position % kBlockTokens;
  const uint32_t own_block =
      p.step.writes[own.first_row] != 0 ? own.position / kBlockTokens : UINT32_MAX;
  const auto see_key = [&](uint32_t block, uint32_t from) {
    if (block != own_block) return;
    put_token(from, shared.token[0], 0, dim,
              [&](uint32_t d) { return key_index(p.cache.stride, slot, d); });
  };
  const auto see_value = [&](uint32_t block, uint32_t from) {
    for (uint32_t d = warp * 8; block == own_block && d < dim; d += kWarps * 8) {
      put_token(from, shared.token[1], d, min(d + 8, dim),
                [&](uint32_t at) { return value_index(slot, at); });
    }
  };
  SlotPlace<S::kSlots> place;
  WholeRow<S> whole;
  bool is_first = true;
  for_each_span(p, own, [&](uint32_t span) {
    float sums[S::kTiles][4] = {};
    sum_span<S>(p, own, span, ring, place, see_key, see_value, shared.softmax, sums);
    whole.add(is_first, shared.softmax, lane, sums);
    is_first = false;
  });
  const uint32_t largest = whole.write(p, own, warp, lane);
  if (p.tiles.data != nullptr) make_tiles_of_row(p, own.first_row, largest, shared);
}

template <class S>
__global__ void __launch_bounds__(kThreads + kWarp, S::kShare)
    attend_whole_rows(const __grid_constant__ SpanParams p) {
  extern __shared__ __align__(1024) std::byte ring_memory[];
  __shared__ RowShared<S> shared;
  const SpanRing<S> ring(ring_memory);
  // Zeros where there is neither query nor dimension.
  auto* const words = reinterpret_cast<uint32_t*>(ring.queries);
  for (uint32_t i = threadIdx.x; i < S::kQueryBytes / 4; i += kThreads + kWarp) words[i] = 0;
  ring.set_up();
  let_next_kernel_begin();
  const Queries own = queries_of(p);
  if (threadIdx.x >= kThreads) {
    SlotPlace<S::kSlots> place;
    if (threadIdx.x > kThreads) return;
    for_each_span(p, own,
                  [&](uint32_t span) { copy_span<S>(p, own, span, ring, place, [](uint32_t) {}); });
    return;
  }
  if (p.heads.sums.planes != nullptr) fetch_for_heads(p, own);
  wait_for_kernel_before();
  attend_unit<S>(p, own, ring, shared);
}

}  // namespace

cudaError_t set_up_whole_rows() {
  return set_up_shapes<true>([](auto shape) {
    using S = decltype(shape);
    return cudaFuncSetAttribute(attend_whole_rows<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                S::kSharedBytes);
  });
}

// More units than processors are faster span by span, where more is under way at once.
bool can_attend_whole_rows(const AttentionWork& work) {
  constexpr uint32_t kMostSpans = 4;  // they are one after the other
  const uint32_t group = work.attention.heads / work.cache.heads;
  if (work.out.rows * work.cache.heads > work.batch.processors) return false;
  const size_t heads_bytes = size_t{group + 2} * work.cache.head_dim * sizeof(float);
  return is_streamed(work.cache) && work.batch.spans <= kMostSpans && group <= kQueries &&
         heads_bytes <= kWeightBytes && is_aligned(work.out) &&
         work.heads.in_fours(work.cache.head_dim);
}

void attend_whole_rows(const SpanParams& params, cudaStream_t stream) {
  with_shape<true>(params.cache, [&](auto shape) {
    using S = decltype(shape);
    launch_overlapped(attend_whole_rows<S>, params.out.rows * params.cache.heads, kThreads + kWarp,
                      S::kSharedBytes, stream, params);
  });
}

}  // namespace skein::cuda
