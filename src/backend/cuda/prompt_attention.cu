// All of attention, in one kernel, for the rows of prompts with long contexts (is_long_prompt).
// A block of threads takes rows that follow each other through the spans in order, for the heads
// that share one of the cache; a thread copies, and each warp has 16 queries of its own, whose
// scores, weights and sums never leave it. So keys and values are copied once for all warps.
#include "backend/cuda/span_merge.cuh"
#include "backend/cuda/span_ring.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kWarpgroup = 128;

// Dimensions of a head, at most that many where it is not kExact; warps that multiply; slots of the
// ring. What a thread alone writes and reads is in shared memory, too: the weights of a span, for
// there are no registers left, and the sums of values so far.
template <uint32_t kDimOf, uint32_t kWarpsOf, uint32_t kSlotsOf, bool kExactOf>
struct PromptShape {
  static constexpr uint32_t kDim = kDimOf, kReaders = kWarpsOf, kSlots = kSlotsOf;
  static constexpr bool kExact = kExactOf;
  static constexpr uint32_t kMultipliers = kReaders * kWarp;  // threads
  static constexpr uint32_t kSteps = kDim / kGroup, kTiles = kDim / 8;
  static constexpr uint32_t kSlotBytes = kBlockTokens * kDim * sizeof(uint16_t);
  static constexpr uint32_t kQueryStride = kDim + 8;
  static constexpr uint32_t kQueryBytes = kReaders * kQueries * kQueryStride * sizeof(uint16_t);
  static constexpr uint32_t kSumBytes = kMultipliers * 4 * kTiles * sizeof(float);
  static constexpr uint32_t kWeightBytes = kSumBytes + kMultipliers * kSpan;
  static constexpr uint32_t kRingBytes = kSlots * kSlotBytes;
  static constexpr uint32_t kSharedBytes = kRingBytes + kQueryBytes + kWeightBytes + 2 * kSlots * 8;
  static_assert(kSharedBytes <= kProcessorBytes - kBlockOverhead);
};

template <class Fn>
auto with_prompt_shape(const DeviceKv& cache, const Fn& fn) {
  const uint32_t exact = cache.head_dim == cache.stride ? cache.stride : 0;
  if (exact == 64) return fn(PromptShape<64, 8, 24, true>());
  if (exact == 128) return fn(PromptShape<128, 8, 8, true>());
  if (exact == 256) return fn(PromptShape<256, 4, 6, true>());
  if (cache.stride <= 128) return fn(PromptShape<128, 8, 8, false>());
  return fn(PromptShape<256, 4, 6, false>());
}

// The units of a block of threads in turn: up to kReaders * rows_each rows of a prompt each, of
// which a unit begins with every so many.
template <class S>
class Units {
 public:
  __device__ explicit Units(const SpanParams& p)
      : p_(p),
        heads_(blockIdx.x % p.cache.heads),
        row_((gridDim.x - 1 - blockIdx.x) / p.cache.heads * rows_of_unit(p)),
        end_(min(row_ + rows_of_unit(p), p.out.rows)) {}

  __device__ static uint32_t rows_of_unit(const SpanParams& p) { return S::kReaders * p.rows_each; }

  // All rows of a unit; false: there are no more.
  __device__ bool next(Queries& all) {
    while (row_ < end_) {
      const uint32_t row = row_, place = p_.step.places[row], left = p_.step.rows_left[row];
      const bool is_prompt = is_of_prompt(p_.step, row), begins = place % rows_of_unit(p_) == 0;
      row_ += !is_prompt ? left : min(rows_of_unit(p_) - place % rows_of_unit(p_), left);
      if (!is_prompt || !begins) continue;
      all = rows_at(row, min(rows_of_unit(p_), left));
      return true;
    }
    return false;
  }
  // Those of a warp: there may be none.
  __device__ Queries of_warp(const Queries& all, uint32_t warp) const {
    const uint32_t before = min(warp * p_.rows_each, all.rows);
    Queries own = all;
    own.first_row += before;
    own.position += before;
    own.rows = min(p_.rows_each, all.rows - before);
    return own;
  }

 private:
  __device__ Queries rows_at(uint32_t row, uint32_t rows) const {
    return {row,
            rows,
            heads_ * p_.group,
            p_.group,
            RowOfQuery::of(p_.group),
            p_.step.positions[row],
            p_.step.blocks + p_.step.first_blocks[row],
            heads_};
  }

  const SpanParams& p_;
  const uint32_t heads_;
  uint32_t row_, end_;
};

// Blocks of the cache that queries see: some of them some of it, or all of them all of it.
struct BlockRange {
  uint32_t begin = 0, count = 0;

  __device__ bool has(uint32_t block) const { return block - begin < count; }
  __device__ static BlockRange seen_by_one(const SpanParams& p, const Queries& own) {
    if (own.rows == 0) return {};
    const uint32_t begin = first_seen(own.position, p.attention.window) / kBlockTokens;
    return {begin, own.last() / kBlockTokens + 1 - begin};
  }
  __device__ static BlockRange seen_by_all(const SpanParams& p, const Queries& own) {
    if (own.rows == 0) return {};
    const uint32_t begin = groups_of(first_seen(own.last(), p.attention.window), kBlockTokens);
    const uint32_t end = (own.position + 1) / kBlockTokens;
    return {begin, end > begin ? end - begin : 0};
  }
};

// A warp's 16 queries on their way through the spans. A thread has scores of queries lane / 4 and
// + 8, as mma has them, and these are what the next mma takes.
template <class S>
class PromptWarp {
 public:
  __device__ PromptWarp(const SpanParams& p, const Queries& own, const SpanRing<S>& ring,
                        SlotPlace<S::kSlots>& place)
      : p_(p),
        own_(own),
        seen_(BlockRange::seen_by_one(p, own)),
        seen_by_all_(BlockRange::seen_by_all(p, own)),
        ring_(ring),
        place_(place),
        queries_(row_address(ring.queries + threadIdx.x / kWarp * kQueries * S::kQueryStride,
                             S::kQueryStride, lane_)),
        sums_(reinterpret_cast<float*>(ring.weights) + threadIdx.x) {}

  __device__ void load_queries() const {
    uint16_t* const to = ring_.queries + threadIdx.x / kWarp * kQueries * S::kQueryStride;
    __syncwarp();  // nobody reads those before
#pragma unroll 4
    for (uint32_t query = 0; query < kQueries; ++query) {  // so many are under way at a time
      const bool is_one = query < own_.count();
      const float* const from = row_at(p_.heads.rows[0], is_one ? own_.row_at(query) : 0) +
                                (is_one ? own_.head_at(query) : 0) * p_.cache.head_dim;
#pragma unroll
      for (uint32_t d = 2 * lane_; d < S::kDim; d += 2 * kWarp) {
        const float low = is_one && (S::kExact || d < p_.cache.head_dim) ? from[d] : 0.0F;
        const float high = is_one && (S::kExact || d + 1 < p_.cache.head_dim) ? from[d + 1] : 0.0F;
        *reinterpret_cast<uint32_t*>(to + query * S::kQueryStride + d) =
            pair_of(arithmetic::round_to_bf16(low), arithmetic::round_to_bf16(high));
      }
    }
    __syncwarp();
  }

  // Spans come in order.
  __device__ __forceinline__ void add(uint32_t span, const SpanBlocks& blocks) {
    const uint32_t first_block = span * kSpanBlocks;
    float largest[2] = {-arithmetic::kInfinity, -arithmetic::kInfinity}, weight[2];
    {
      float scores[4 * kSpanBlocks][4];
#pragma unroll
      for (uint32_t i = 0; i < kSpanBlocks; ++i) {
        const uint32_t block = first_block + i;
        if (block < blocks.begin || block >= blocks.end) continue;
        const uint32_t keys = take();
        if (seen_.has(block)) score(keys, scores + 4 * i);
        give_back();
      }
#pragma unroll
      for (uint32_t i = 0; i < kSpanBlocks; ++i) {
        if (seen_.has(first_block + i)) finish_scores(first_block + i, scores + 4 * i, largest);
      }
      largest_of_queries(largest);
      weigh(first_block, scores, largest, weight);
    }
    float sums[S::kTiles][4] = {};
#pragma unroll 1
    for (uint32_t block = blocks.begin; block < blocks.end; ++block) {
      const uint32_t values = take();
      if (seen_.has(block)) add_values(block, block - first_block, values, sums);
      give_back();
    }
    merge(span, largest, weight, sums);
  }

  __device__ void write() {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t query = lane_ / 4 + 8 * half;
      if (query >= own_.count()) break;
      softmax_[half].end(p_.attention.sinks, own_.head_at(query));
      float* const out =
          row_at(p_.out, own_.row_at(query)) + own_.head_at(query) * p_.cache.head_dim;
#pragma unroll 4
      for (uint32_t i = 0; i < 2 * S::kTiles; ++i) {
        const uint32_t d = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
        const float all = sums_[(i / 2 * 4 + 2 * half + i % 2) * S::kMultipliers];
        if (S::kExact || d < p_.cache.head_dim) out[d] = softmax_[half].result(all);
      }
    }
  }

 private:
  // The next slot, once it is full.
  __device__ __forceinline__ uint32_t take() const {
    wait(ring_.full + place_.slot * 8, place_.parity);
    return ring_.slots + place_.slot * S::kSlotBytes;
  }
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (lane_ == 0) arrive(ring_.empty + place_.slot * 8);
    place_ = place_.after(1);
  }
  __device__ uint32_t stride() const {
    return S::kExact ? S::kDim : p_.cache.stride;
  }

  // Where a thread's row of 8 keys lies, of dimensions k * 16 and of those + 8, in that pair of
  // tiles of 8 tokens.
  __device__ __forceinline__ uint32_t keys_at(uint32_t keys, uint32_t k, uint32_t pair) const {
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, half = lane_ / 8 % 2;
    if constexpr (S::kExact) {  // key_index, in fewer instructions
      return ((keys + row * (2 * S::kDim) + (half ^ lane_ % 8) * 16) ^ (32 * k)) +
             pair * (16 * 2 * S::kDim);
    }
    return keys + 2 * key_index(p_.cache.stride, pair * 16 + row, k * kGroup + half * 8);
  }
  // Scores of the 32 tokens whose keys are in a slot.
  __device__ __forceinline__ void score(uint32_t keys, float (*scores)[4]) const {
#pragma unroll
    for (uint32_t n = 0; n < 16; ++n) scores[n / 4][n % 4] = 0;
    uint32_t a[2][4], b[2][2][4];  // the next ones are on their way while these are multiplied
    const auto load = [&](uint32_t k) {
      load_matrices(queries_ + 2 * k * kGroup, a[k % 2]);
      load_matrices(keys_at(keys, k, 0), b[k % 2][0]);
      load_matrices(keys_at(keys, k, 1), b[k % 2][1]);
    };
    load(0);
#pragma unroll
    for (uint32_t k = 0; k < S::kSteps; ++k) {
      if (!S::kExact && k * kGroup >= stride()) break;
      if (k + 1 < S::kSteps) load(k + 1);
#pragma unroll
      for (uint32_t n = 0; n < 4; ++n) {
        add_products(scores[n], a[k % 2], b[k % 2][n / 2][n % 2 * 2],
                     b[k % 2][n / 2][n % 2 * 2 + 1]);
      }
    }
  }
  // What is not seen has no weight.
  __device__ __forceinline__ void finish_scores(uint32_t block, float (*scores)[4],
                                                float (&largest)[2]) const {
    if (!seen_by_all_.has(block)) {
      const uint32_t token = block * kBlockTokens + lane_ % 4 * 2;
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const SeenTokens seen(p_, own_, lane_ / 4 + 8 * half);
#pragma unroll
        for (uint32_t e = 0; e < 8; ++e) {
          if (seen.has(token + e / 2 * 8 + e % 2)) continue;
          scores[e / 2][2 * half + e % 2] = -arithmetic::kInfinity;
        }
      }
    }
#pragma unroll
    for (uint32_t e = 0; e < 16; ++e) {
      float &score = scores[e / 4][e % 4], &most = largest[e % 4 / 2];
      score = score * p_.attention.scale;
      most = arithmetic::larger(most, score);
    }
  }
  static __device__ __forceinline__ void largest_of_queries(float (&largest)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      float& own = largest[i / 2];
      own = arithmetic::larger(own, __shfl_xor_sync(0xffffffffU, own, 1U << i % 2));
    }
  }
  // A thread's weights of 16 tokens of the span, as mma takes them.
  __device__ __forceinline__ uint32_t weights_at(uint32_t group) const {
    return shared_address(ring_.weights) + S::kSumBytes +
           (group * S::kMultipliers + threadIdx.x) * 16;
  }
  // Scores become weights. Their sums have the order that sum_weights has.
  __device__ __forceinline__ void weigh(uint32_t first_block,
                                        const float (&scores)[4 * kSpanBlocks][4],
                                        const float (&largest)[2], float (&sums)[2]) const {
    float lanes[2][4] = {};  // of each half, tokens t % 16 = lane % 4 * 2, + 1, + 8, + 9
#pragma unroll
    for (uint32_t group = 0; group < 2 * kSpanBlocks; ++group) {
      if (!seen_.has(first_block + group / 2)) continue;
      uint32_t weights[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t half = j % 2, n = 2 * group + j / 2;
        weights[j] = rounded_pair(arithmetic::exp(scores[n][2 * half] - largest[half]),
                                  arithmetic::exp(scores[n][2 * half + 1] - largest[half]));
        float* const to = lanes[half] + j / 2 * 2;
        to[0] = to[0] + arithmetic::float_of_bf16(static_cast<uint16_t>(weights[j]));
        to[1] = to[1] + arithmetic::float_of_bf16(static_cast<uint16_t>(weights[j] >> 16));
      }
      store_shared(weights_at(group), weights);
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float even = lanes[half][0] + lanes[half][2], odd = lanes[half][1] + lanes[half][3];
#pragma unroll
      for (uint32_t by = 2; by > 0; by /= 2) {
        even = even + __shfl_xor_sync(0xffffffffU, even, by);
        odd = odd + __shfl_xor_sync(0xffffffffU, odd, by);
      }
      sums[half] = even + odd;
    }
  }
  static __device__ __forceinline__ void load_values(uint32_t from, uint32_t tile,
                                                     uint32_t (&b)[4]) {
    const uint32_t lane = threadIdx.x % kWarp;
    static_assert(value_index(8, 9) == value_index(8, 1) + value_index(0, 8));
    load_matrices(from + 2 * (value_index(lane / 8 * 8, lane % 8) + value_index(0, tile * 8)), b);
  }
  // Onto the sums, of the 32 tokens whose values are in a slot; `number` is that of the block in
  // its span. A value that is not finite must not reach a query that does not see it, not even
  // times zero.
  __device__ __forceinline__ void add_values(uint32_t block, uint32_t number, uint32_t from,
                                             float (&sums)[S::kTiles][4]) const {
    uint32_t weights[2][4];
    load_shared(weights_at(2 * number), weights[0]);
    load_shared(weights_at(2 * number + 1), weights[1]);
    if (!seen_by_all_.has(block) && !are_finite(from)) {
      return add_one_by_one(block * kBlockTokens, from, weights, sums);
    }
    constexpr uint32_t kAtOnce = 4;
#pragma unroll
    for (uint32_t first = 0; first < S::kTiles; first += kAtOnce) {
      if (!S::kExact && first * 8 >= stride()) break;
      uint32_t b[kAtOnce][4];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) load_values(from, first + i, b[i]);
#pragma unroll
      for (uint32_t i = 0; i < 2 * kAtOnce; ++i) {
        const uint32_t half = i / kAtOnce, tile = i % kAtOnce;
        add_products(sums[first + tile], weights[half], b[tile][2 * half], b[tile][2 * half + 1]);
      }
    }
  }
  __device__ __forceinline__ bool are_finite(uint32_t from) const {
    bool finite = true;
#pragma unroll 2
    for (uint32_t tile = 0; tile * 8 < stride(); ++tile) {
      uint32_t b[4];
      load_values(from, tile, b);
      for (uint32_t j = 0; j < 4; ++j) finite = finite && is_finite_pair(b[j]);
    }
    return __all_sync(0xffffffffU, finite);
  }
  __device__ __forceinline__ void add_one_by_one(uint32_t first, uint32_t from,
                                                 const uint32_t (&weights)[2][4],
                                                 float (&sums)[S::kTiles][4]) const {
    const uint32_t token = first + lane_ % 4 * 2;
#pragma unroll 1
    for (uint32_t query = 0; query < own_.count(); ++query) {
      const SeenTokens seen(p_, own_, query);
      uint32_t kept[4];  // of what a thread loads
      for (uint32_t j = 0; j < 4; ++j) {
        kept[j] = (seen.has(token + j * 8) ? 0x0000ffffU : 0) |
                  (seen.has(token + j * 8 + 1) ? 0xffff0000U : 0);
      }
#pragma unroll
      for (uint32_t tile = 0; tile < S::kTiles; ++tile) {
        if (!S::kExact && tile * 8 >= stride()) break;
        uint32_t b[4];
        load_values(from, tile, b);
        float with[4] = {sums[tile][0], sums[tile][1], sums[tile][2], sums[tile][3]};
        add_products(with, weights[0], b[0] & kept[0], b[1] & kept[1]);
        add_products(with, weights[1], b[2] & kept[2], b[3] & kept[3]);
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
          if (query == lane_ / 4 + j / 2 * 8) sums[tile][j] = with[j];
        }
      }
    }
  }
  // Onto the spans before, for the queries that see some of this one.
  __device__ __forceinline__ void merge(uint32_t span, const float (&largest)[2],
                                        const float (&weight)[2],
                                        const float (&sums)[S::kTiles][4]) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t query = lane_ / 4 + 8 * half;
      if (query >= own_.count()) break;
      const uint32_t last = own_.position_of(query);
      const uint32_t begin = first_seen(last, p_.attention.window) / kSpan;
      if (span < begin || span > last / kSpan) continue;
      softmax_[half].add(span == begin, largest[half], weight[half]);
#pragma unroll
      for (uint32_t i = 0; i < 2 * S::kTiles; ++i) {
        float& all = sums_[(i / 2 * 4 + 2 * half + i % 2) * S::kMultipliers];
        all = softmax_[half].sum(span == begin, all, sums[i / 2][2 * half + i % 2]);
      }
    }
  }

  const SpanParams& p_;
  const Queries own_;
  const BlockRange seen_, seen_by_all_;
  const SpanRing<S>& ring_;
  SlotPlace<S::kSlots>& place_;
  const uint32_t lane_ = threadIdx.x % kWarp;
  const uint32_t queries_;  // the address of a thread's row of the first 16 columns
  float* const sums_;       // of the thread, S::kMultipliers apart
  RunningSoftmax softmax_[2];
};

template <class S>
__global__ void __launch_bounds__(S::kMultipliers + kWarpgroup, 1)
    attend_prompt_rows(const __grid_constant__ SpanParams p) {
  extern __shared__ __align__(1024) std::byte ring_memory[];
  const SpanRing<S> ring(ring_memory);
  ring.set_up();
  let_next_kernel_begin();
  wait_for_kernel_before();
  SlotPlace<S::kSlots> place;
  Units<S> units(p);
  if (threadIdx.x >= S::kMultipliers) {
    keep_registers<24>();
    if (threadIdx.x > S::kMultipliers) return;
    for (Queries all; units.next(all);) {
      for_each_span(
          p, all, [&](uint32_t span) { copy_span<S>(p, all, span, ring, place, [](uint32_t) {}); });
    }
    return;
  }
  take_registers<240>();
  for (Queries all; units.next(all);) {
    PromptWarp<S> warp(p, units.of_warp(all, threadIdx.x / kWarp), ring, place);
    warp.load_queries();
    for_each_span(p, all, [&](uint32_t span) { warp.add(span, SpanBlocks(p, all, span)); });
    warp.write();
  }
}

}  // namespace

cudaError_t set_up_prompts() {
  cudaError_t error = cudaSuccess;
  for (const uint32_t stride : {64, 128, 256, 16, 144}) {
    DeviceKv cache;
    cache.head_dim = cache.stride = stride;
    const cudaError_t own = with_prompt_shape(cache, [](auto shape) {
      using S = decltype(shape);
      return cudaFuncSetAttribute(attend_prompt_rows<S>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
    });
    if (error == cudaSuccess) error = own;
  }
  return error;
}

bool can_attend_prompts(const AttentionWork& work) {
  return is_streamed(work.cache) && work.attention.heads / work.cache.heads <= kQueries &&
         work.attention.softcap == 0;
}

void attend_prompts(const SpanParams& params, cudaStream_t stream) {
  with_prompt_shape(params.cache, [&](auto shape) {
    using S = decltype(shape);
    const uint32_t units = groups_of(params.out.rows, S::kReaders * params.rows_each);
    launch_overlapped(attend_prompt_rows<S>, units * params.cache.heads,
                      S::kMultipliers + kWarpgroup, S::kSharedBytes, stream, params);
  });
}

}  // namespace skein::cuda
