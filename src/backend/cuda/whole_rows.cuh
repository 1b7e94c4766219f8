// A row that is a sequence of its own, on its way through attention in one kernel: a block of
// threads takes the heads of it that share one of the cache. It makes them out of the product whose
// outputs they are; the row's own key and value reach the multiplication without memory, so all
// that is copied is there before the kernel before has ended. Who is the last with its heads of a
// row makes tiles of it.
#pragma once

#include "backend/cuda/heads.cuh"
#include "backend/cuda/span_merge.cuh"
#include "backend/cuda/spans.cuh"

namespace skein::cuda {

// The first kBlock threads have come here.
template <uint32_t kBlock>
__device__ inline void sync_block() {
  asm volatile("bar.sync 1, %0;" ::"n"(kBlock) : "memory");
}

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
template <uint32_t kBlock>
__device__ inline void fetch_for_heads(const SpanParams& p, const Queries& own) {
  if (p.heads.sums.planes == nullptr) return;
  const RowHeads heads{p, own};
  for (uint32_t i = threadIdx.x * 8; i < heads.count() * p.cache.head_dim; i += kBlock * 8) {
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

// Where a block of threads has the heads that it makes, in shared memory.
struct MadeHeads {
  uint16_t* queries;  // `stride` apart
  uint32_t stride;
  uint16_t* token[2];  // the row's own key and value
  float* angles;       // as many as there are dimensions
  float* numbers;      // of all heads, on the way
};

// The outputs of the product, four a thread and kAtOnce of these under way at a time.
template <uint32_t kBlock, uint32_t kAtOnce>
__device__ void load_heads(const SpanParams& p, const Queries& own, uint32_t fours,
                           const MadeHeads& made) {
  const RowHeads heads{p, own};
  const DeviceHeads& from = p.heads;
  const uint32_t count = heads.count() * fours;
  for (uint32_t first = threadIdx.x; first < count; first += kAtOnce * kBlock) {
    Outputs<4> x[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t i = min(first + j * kBlock, count - 1);
      const uint32_t head = i / fours, kind = heads.kind(head);
      const uint32_t column = heads.column(head) + (i - head * fours) * 4;
      x[j] = from.sums.planes == nullptr
                 ? load_outputs<4>(row_at(from.rows[kind], own.first_row) + column)
                 : product_at<4>(from.sums, own.first_row, from.first_outputs[kind] + column);
    }
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t i = first + j * kBlock;
      if (i < count) *reinterpret_cast<Outputs<4>*>(made.numbers + 4 * i) = x[j];
    }
  }
}

// Heads out of their product, turned, rounded, and stored where they belong; four numbers a thread.
template <uint32_t kBlock>
__device__ void make_heads(const SpanParams& p, const Queries& own, uint32_t dim,
                           const MadeHeads& made) {
  constexpr uint32_t kAngles = groups_of(kMostStride, kBlock), kAtOnce = kBlock < 256 ? 2 : 1;
  const uint32_t fours = dim / 4, row = own.first_row;
  const RowHeads heads{p, own};
  const DeviceHeads& from = p.heads;
  float angles[kAngles];
#pragma unroll
  for (uint32_t i = 0; i < kAngles; ++i) {
    const uint32_t at = i * kBlock + threadIdx.x;
    angles[i] = at < from.angles.width ? row_at(from.angles, row)[at] : 0.0F;
  }
  const RowSlot place(p.step, row);
  load_heads<kBlock, kAtOnce>(p, own, fours, made);
#pragma unroll
  for (uint32_t i = 0; i < kAngles; ++i) {
    const uint32_t at = i * kBlock + threadIdx.x;
    if (at < from.angles.width) made.angles[at] = angles[i];
  }
  sync_block<kBlock>();
  for (uint32_t i = threadIdx.x; i < heads.count() * fours; i += kBlock) {
    const uint32_t head = i / fours, d = (i - head * fours) * 4, kind = heads.kind(head);
    const Outputs<4> x = kind == 2 ? *reinterpret_cast<const Outputs<4>*>(made.numbers + 4 * i)
                                   : turned(from, made.numbers + head * dim, made.angles, d);
    *reinterpret_cast<Outputs<4>*>(row_at(from.rows[kind], row) + heads.column(head) + d) = x;
    uint16_t rounded[4];
    for (uint32_t k = 0; k < 4; ++k) rounded[k] = arithmetic::round_to_bf16(x.at[k]);
    uint16_t* const to = kind == 0 ? made.queries + head * made.stride : made.token[kind - 1];
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
  sync_block<kBlock>();
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

// `largest` is the largest magnitude of what a thread has written of the row.
template <uint32_t kBlock>
__device__ void make_tiles_of_row(const SpanParams& p, uint32_t row, uint32_t largest) {
  __shared__ uint32_t largest_of_row;
  uint32_t* const done = p.marks + 2 * row;
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % kWarp == 0) atomicMax(done + 1, largest);
  sync_block<kBlock>();
  if (threadIdx.x == 0) {
    __threadfence();
    const bool is_last = atomicAdd(done, 1) + 1 == p.cache.heads;
    __threadfence();
    largest_of_row = is_last ? __ldcg(done + 1) : UINT32_MAX;
    if (is_last) done[0] = done[1] = 0;
  }
  sync_block<kBlock>();
  if (largest_of_row == UINT32_MAX) return;
  const int32_t exponent = arithmetic::f16_exponent(largest_of_row);
  const float scale = arithmetic::power_of_two(exponent);
  if (threadIdx.x == 0) p.tiles.scales[row] = arithmetic::power_of_two(-exponent);
    // Few threads have more of it under way each.
#pragma unroll(kBlock < 256 ? 8 : 4)
  for (uint32_t k = 4 * threadIdx.x; k < p.tiles.input_blocks * kTileInputs; k += 4 * kBlock) {
    float4 x{};
    if (k < p.out.width) x = __ldcg(reinterpret_cast<const float4*>(row_at(p.out, row) + k));
    std::byte* const block =
        p.tiles.data + size_t{k / kTileInputs} * p.tiles.rows * (2 * kTileInputs);
    *reinterpret_cast<uint2*>(block + offset_in_tile(row, k % kTileInputs)) = {
        pair_of(f16_of(x.x * scale), f16_of(x.y * scale)),
        pair_of(f16_of(x.z * scale), f16_of(x.w * scale))};
  }
}

}  // namespace skein::cuda
