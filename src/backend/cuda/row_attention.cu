// All of attention, in one kernel, for rows that are sequences of their own (whole_rows.cuh). A
// block of threads goes through the spans of a row in order, for the heads that share one of the
// cache: a thread copies, and warps score a block of keys each, then sum some dimensions each.
// Tokens are the rows of a product and queries its columns, of which there are 8.
#include "backend/cuda/span_ring.cuh"
#include "backend/cuda/whole_rows.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kColumns = 8;  // queries, and zeros beside them
constexpr uint32_t kSpanGroups = kSpan / kGroup;
constexpr uint32_t kFragmentBytes = kWarp * 8;  // weights of 16 tokens, as a product takes them

// Dimensions of a head, warps that multiply, slots of the ring, and blocks of threads that share a
// processor: of few rows there is one, and the product behind them has begun beside it.
template <uint32_t kDimOf, uint32_t kWarpsOf, uint32_t kSlotsOf, uint32_t kShareOf>
struct RowShape {
  static constexpr uint32_t kDim = kDimOf, kReaders = kWarpsOf, kSlots = kSlotsOf,
                            kShare = kShareOf;
  static constexpr uint32_t kMultipliers = kReaders * kWarp;   // threads
  static constexpr uint32_t kBlocks = kSpanBlocks / kReaders;  // of keys, for a warp
  static constexpr uint32_t kSteps = kDim / kGroup, kTiles = kSteps / kReaders;  // for a warp
  static_assert(kTiles > 0 && kSteps % kReaders == 0);
  // Whether keys of a span take a slot each: then a warp waits for its own alone.
  static constexpr bool kHasAllKeys = kSlots >= kSpanBlocks;
  static constexpr uint32_t kSlotBytes = kBlockTokens * kDim * sizeof(uint16_t);
  static constexpr uint32_t kQueryStride = kDim + 8;
  static constexpr uint32_t kQueryBytes = kColumns * kQueryStride * sizeof(uint16_t);
  // Of weights and, before there are any, of the numbers of heads.
  static constexpr uint32_t kWeightBytes =
      std::max<uint32_t>(kSpanGroups * kFragmentBytes, (kColumns + 2) * kDim * sizeof(float));
  static constexpr uint32_t kRingBytes = kSlots * kSlotBytes;
  static constexpr uint32_t kSharedBytes = kRingBytes + kQueryBytes + kWeightBytes + 2 * kSlots * 8;
};

// What is left of a processor's beside RowShared.
constexpr uint32_t kMostDynamicBytes = kProcessorBytes - kBlockOverhead - 4096;

template <bool kFew, class Fn>
auto with_row_shape(uint32_t dim, const Fn& fn) {
  if constexpr (kFew) {
    if (dim == 64) return fn(RowShape<64, 4, 40, 1>());
    if (dim == 128) return fn(RowShape<128, 8, 12, 1>());
    return fn(RowShape<256, 8, 12, 1>());
  } else {
    if (dim == 64) return fn(RowShape<64, 4, 10, 4>());
    if (dim == 128) return fn(RowShape<128, 4, 5, 4>());
    return fn(RowShape<256, 4, 5, 2>());
  }
}

// What the warps share beside the ring.
template <class S>
struct RowShared {
  float largest[S::kReaders][kColumns], sums[kColumns];  // of a span
  float angles[S::kDim];
  alignas(8) uint16_t token[2][S::kDim];  // the row's own key and value
};

// The tokens that a row sees.
struct RowTokens {
  uint32_t seen, position;

  __device__ RowTokens(const SpanParams& p, const Queries& own)
      : seen(first_seen(own.position, p.attention.window)), position(own.position) {}
  __device__ bool has(uint32_t token) const { return token - seen <= position - seen; }
  __device__ bool has_all(uint32_t block) const {
    return block * kBlockTokens >= seen && block * kBlockTokens + kBlockTokens - 1 <= position;
  }
};

// A warp's place in the ring. It waits for every slot and gives each back, so that it always knows
// the round; or for one of those that all warps share out among them, each of which gives its own
// back for all.
template <class S>
struct Reader {
  uint32_t slots, full, empty;  // addresses
  uint32_t lane;
  SlotPlace<S::kSlots> place;

  __device__ Reader after(uint32_t by) const { return {slots, full, empty, lane, place.after(by)}; }
  __device__ uint32_t take() const {
    wait(full + place.slot * 8, place.parity);
    return slots + place.slot * S::kSlotBytes;
  }
  __device__ void give_back() {
    __syncwarp();
    if (lane == 0) arrive(empty + place.slot * 8);
    place = place.after(1);
  }
  __device__ void give_back_for_all() const {
    __syncwarp();
    if (lane < S::kReaders) arrive(empty + place.slot * 8);
  }
};

// Where a thread's row of a matrix of 16 rows of `bytes` each begins, whose pieces of 16 bytes have
// changed places within a row by `turn`; piece i of all rows is at that ^ 16 * i.
__device__ inline uint32_t rows_of_matrix(uint32_t matrix, uint32_t bytes, uint32_t turn,
                                          uint32_t lane) {
  return matrix + lane % 16 * bytes + ((lane / 16 ^ turn) * 16);
}

// An 8 x 8 matrix of pairs, as products leave it, the other way round, as they take it.
__device__ inline uint32_t transposed(uint32_t pairs) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pairs));
  return out;
}

// A warp's part of one span after the other.
template <class S>
class RowWarp {
 public:
  __device__ RowWarp(const SpanParams& p, const Queries& own, const SpanRing<S>& ring,
                     RowShared<S>& shared)
      : p_(p),
        tokens_(p, own),
        ring_(ring),
        shared_(shared),
        own_block_(p.step.writes[own.first_row] != 0 ? own.position / kBlockTokens : UINT32_MAX),
        weights_(shared_address(ring.weights) + lane_ * 8),
        reader_{ring.slots, ring.full, ring.empty, lane_, {}} {
    const uint32_t rows = shared_address(ring.queries) + lane_ % 8 * (2 * S::kQueryStride);
#pragma unroll
    for (uint32_t i = 0; i < S::kSteps; i += 2) {
      load_matrices(rows + (lane_ / 8 + 2 * i) * 16, queries_[i]);
    }
  }

  // Spans come in order.
  __device__ void add(uint32_t span, const SpanBlocks& blocks, bool is_first) {
    float scores[2 * S::kBlocks][4] = {}, largest[2], sums[S::kTiles][4] = {};
    const uint32_t first = span * kSpanBlocks;
    const auto for_own_blocks = [&](const auto& fn) {
#pragma unroll
      for (uint32_t i = 0; i < S::kBlocks; ++i) {
        const uint32_t block = first + warp_ + i * S::kReaders;
        if (block >= blocks.begin && block < blocks.end) {
          fn(block, scores[2 * i], scores[2 * i + 1]);
        }
      }
    };
    if constexpr (S::kHasAllKeys) {
      for_own_blocks([&](uint32_t block, float(&even)[4], float(&odd)[4]) {
        const auto own = reader_.after(block - blocks.begin);
        score(block, own.take(), even, odd);
        own.give_back_for_all();
      });
      reader_ = reader_.after(blocks.count());
    } else {
      for (uint32_t block = blocks.begin; block < blocks.end; ++block) {
        const uint32_t keys = reader_.take();
#pragma unroll
        for (uint32_t i = 0; i < S::kBlocks; ++i) {
          if (block - first != warp_ + i * S::kReaders) continue;
          score(block, keys, scores[2 * i], scores[2 * i + 1]);
        }
        reader_.give_back();
      }
    }
    largest[0] = largest[1] = -arithmetic::kInfinity;
    for_own_blocks([&](uint32_t block, float(&even)[4], float(&odd)[4]) {
      finish_scores(block, even, odd, largest);
    });
    largest_of_all(largest);
    for_own_blocks([&](uint32_t block, float(&even)[4], float(&odd)[4]) {
      const uint32_t to = weights_ + (block - first) * (2 * kFragmentBytes);
      weigh(even, largest, to);
      weigh(odd, largest, to + kFragmentBytes);
    });
    sync_block<S::kMultipliers>();
    sum_weights(blocks.begin - first, blocks.end - first);
    for (uint32_t block = blocks.begin; block < blocks.end; ++block) {
      const uint32_t values = reader_.take();
      sum_values(block, values, weights_ + (block - first) * (2 * kFragmentBytes), sums);
      reader_.give_back();
    }
    sync_block<S::kMultipliers>();  // nobody reads weights, and their sums are there
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      softmax_[j].add(is_first, largest[j], shared_.sums[lane_ % 4 * 2 + j]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4 * S::kTiles; ++i) {
      float& value = values_[i / 4][i % 4];
      value = softmax_[i % 2].sum(is_first, value, sums[i / 4][i % 4]);
    }
  }

  // The largest magnitude of what a thread has written.
  __device__ uint32_t write(const Queries& own) {
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t query = lane_ % 4 * 2 + j;
      if (query >= own.heads) break;
      softmax_[j].end(p_.attention.sinks, own.first_head + query);
      float* const out = row_at(p_.out, own.first_row) + (own.first_head + query) * S::kDim +
                         warp_ * S::kTiles * kGroup + lane_ / 4;
#pragma unroll
      for (uint32_t i = 0; i < 2 * S::kTiles; ++i) {
        const float x = softmax_[j].result(values_[i / 2][i % 2 * 2 + j]);
        out[i * 8] = x;
        largest = max(largest, arithmetic::bits_of_float(x) & 0x7fffffffU);
      }
    }
    return largest;
  }

 private:
  // Scores of the 32 tokens whose keys are in a slot: of tokens lane / 4 and + 8 of each 16,
  // queries lane % 4 * 2 and + 1.
  __device__ void score(uint32_t block, uint32_t keys, float (&even)[4], float (&odd)[4]) const {
    constexpr uint32_t kRowBytes = S::kDim * sizeof(uint16_t);
    if (block == own_block_) {
      put_token(keys, shared_.token[0], 0, S::kDim,
                [&](uint32_t d) { return key_index(S::kDim, tokens_.position % kBlockTokens, d); });
    }
    const uint32_t at = rows_of_matrix(keys, kRowBytes, lane_ % 8, lane_);
#pragma unroll
    for (uint32_t k = 0; k < S::kSteps; ++k) {
      uint32_t a[4], b[4];
      load_matrices(at ^ (32 * k), a);
      load_matrices((at ^ (32 * k)) + kGroup * kRowBytes, b);
      add_products(even, a, queries_[k][0], queries_[k][1]);
      add_products(odd, b, queries_[k][0], queries_[k][1]);
    }
  }
  // What is not seen has no weight.
  __device__ void finish_scores(uint32_t block, float (&even)[4], float (&odd)[4],
                                float (&largest)[2]) const {
    const auto score = [&](uint32_t j) -> float& { return j < 4 ? even[j] : odd[j - 4]; };
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) score(j) = score(j) * p_.attention.scale;
    if (p_.attention.softcap != 0) {
      for (uint32_t j = 0; j < 8; ++j) score(j) = capped(score(j), p_.attention.softcap);
    }
    if (!tokens_.has_all(block)) {
#pragma unroll
      for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t token = block * kBlockTokens + j / 2 * 8 + lane_ / 4;
        score(j) = tokens_.has(token) ? score(j) : -arithmetic::kInfinity;
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) largest[j % 2] = arithmetic::larger(largest[j % 2], score(j));
  }
  __device__ void largest_of_all(float (&largest)[2]) {
#pragma unroll
    for (uint32_t j = 0; j < 6; ++j) {
      float& own = largest[j % 2];
      own = arithmetic::larger(own, __shfl_xor_sync(0xffffffffU, own, 4U << j / 2));
    }
    const auto at = [&](uint32_t warp) {
      return reinterpret_cast<float2*>(&shared_.largest[warp][lane_ % 4 * 2]);
    };
    if (lane_ < 4) *at(warp_) = {largest[0], largest[1]};
    sync_block<S::kMultipliers>();
    largest[0] = largest[1] = -arithmetic::kInfinity;
#pragma unroll
    for (uint32_t w = 0; w < S::kReaders; ++w) {
      const float2 other = *at(w);
      largest[0] = arithmetic::larger(largest[0], other.x);
      largest[1] = arithmetic::larger(largest[1], other.y);
    }
  }
  // Scores of 16 tokens become weights, as products with values take them.
  __device__ static void weigh(const float (&scores)[4], const float (&largest)[2], uint32_t to) {
    uint32_t pairs[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      pairs[half] = transposed(rounded_pair(arithmetic::exp(scores[2 * half] - largest[0]),
                                            arithmetic::exp(scores[2 * half + 1] - largest[1])));
    }
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(pairs[0]), "r"(pairs[1])
                 : "memory");
  }
  // Two queries a warp, by 16 threads each, over blocks [begin, end) of the span.
  __device__ void sum_weights(uint32_t begin, uint32_t end) {
#pragma unroll
    for (uint32_t query = 2 * warp_ + lane_ / kLaneThreads; query < kColumns;
         query += 2 * S::kReaders) {
      if (query - lane_ / kLaneThreads >= p_.group) break;  // a whole warp
      const uint32_t token = lane_ % kLaneThreads;
      const uint16_t* at =
          ring_.weights + (query * 4 + token % 8 / 2) * 4 + token / 8 * 2 + token % 2;
      at += begin * kFragmentBytes;
      float sum = 0;
#pragma unroll 4
      for (uint32_t i = 2 * begin; i < 2 * end; ++i, at += kFragmentBytes / 2) {
        sum = sum + arithmetic::float_of_bf16(*at);
      }
      sum = sum_of_lanes(sum);
      if (token == 0) shared_.sums[query] = sum;
    }
  }
  // The 32 tokens whose values are in a slot, in a warp's dimensions; what is not seen is zero.
  __device__ void sum_values(uint32_t block, uint32_t values, uint32_t weights,
                             float (&sums)[S::kTiles][4]) const {
    constexpr uint32_t kRowBytes = kBlockTokens * sizeof(uint16_t);
    constexpr uint32_t kOwn = S::kTiles * kGroup;
    if (block == own_block_) {
      put_token(values, shared_.token[1], warp_ * kOwn, warp_ * kOwn + kOwn,
                [&](uint32_t d) { return value_index(tokens_.position % kBlockTokens, d); });
    }
    const uint32_t at =
        rows_of_matrix(values, kRowBytes, lane_ % 8 / 2, lane_) + warp_ * kOwn * kRowBytes;
    const bool hides = !tokens_.has_all(block);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t token = block * kBlockTokens + half * kGroup + lane_ % 4 * 2;
      uint32_t b0, b1;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(b0), "=r"(b1)
                   : "r"(weights + half * kFragmentBytes)
                   : "memory");
#pragma unroll
      for (uint32_t tile = 0; tile < S::kTiles; ++tile) {
        uint32_t a[4];
        load_matrices((at ^ (32 * half)) + tile * kGroup * kRowBytes, a);
        for (uint32_t i = 0; i < 4 && hides; ++i) {
          if (!tokens_.has(token + i / 2 * 8)) a[i] &= 0xffff0000U;
          if (!tokens_.has(token + i / 2 * 8 + 1)) a[i] &= 0x0000ffffU;
        }
        add_products(sums[tile], a, b0, b1);
      }
    }
  }

  const SpanParams& p_;
  const RowTokens tokens_;
  const SpanRing<S>& ring_;
  RowShared<S>& shared_;
  const uint32_t warp_ = threadIdx.x / kWarp, lane_ = threadIdx.x % kWarp;
  const uint32_t own_block_;  // the one with the row's own token, where that is stored
  const uint32_t weights_;    // a thread's in the first fragment
  Reader<S> reader_;
  uint32_t queries_[S::kSteps][2];
  float values_[S::kTiles][4];
  RunningSoftmax softmax_[2];  // of queries lane % 4 * 2 and + 1
};

template <class S>
__global__ void __launch_bounds__(S::kMultipliers + kWarp, S::kShare)
    attend_whole_rows(const __grid_constant__ SpanParams p) {
  extern __shared__ __align__(1024) std::byte ring_memory[];
  __shared__ RowShared<S> shared;
  const SpanRing<S> ring(ring_memory);
  // Zeros where there is no query.
  auto* const words = reinterpret_cast<uint32_t*>(ring.queries);
  for (uint32_t i = threadIdx.x; i < S::kQueryBytes / 4; i += blockDim.x) words[i] = 0;
  ring.set_up();
  let_next_kernel_begin();
  const Queries own = queries_of(p);
  if (threadIdx.x >= S::kMultipliers) {
    SlotPlace<S::kSlots> place;
    if (threadIdx.x > S::kMultipliers) return;
    for_each_span(p, own,
                  [&](uint32_t span) { copy_span<S>(p, own, span, ring, place, [](uint32_t) {}); });
    return;
  }
  fetch_for_heads<S::kMultipliers>(p, own);
  wait_for_kernel_before();
  // There are no weights yet.
  make_heads<S::kMultipliers>(p, own, S::kDim,
                              {ring.queries,
                               S::kQueryStride,
                               {shared.token[0], shared.token[1]},
                               shared.angles,
                               reinterpret_cast<float*>(ring.weights)});
  RowWarp<S> warp(p, own, ring, shared);
  bool is_first = true;
  for_each_span(p, own, [&](uint32_t span) {
    warp.add(span, SpanBlocks(p, own, span), is_first);
    is_first = false;
  });
  const uint32_t largest = warp.write(own);
  if (p.tiles.data != nullptr) make_tiles_of_row<S::kMultipliers>(p, own.first_row, largest);
}

template <bool kFew>
cudaError_t set_up_rows() {
  cudaError_t error = cudaSuccess;
  for (const uint32_t dim : {64, 128, 256}) {
    const cudaError_t own = with_row_shape<kFew>(dim, [](auto shape) {
      using S = decltype(shape);
      return cudaFuncSetAttribute(attend_whole_rows<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kMostDynamicBytes);
    });
    if (error == cudaSuccess) error = own;
  }
  return error;
}

template <bool kFew>
void launch_rows(const SpanParams& params, uint32_t processors, cudaStream_t stream) {
  with_row_shape<kFew>(params.cache.head_dim, [&](auto shape) {
    using S = decltype(shape);
    const uint32_t blocks = params.out.rows * params.cache.heads;
    launch_overlapped(attend_whole_rows<S>, blocks, S::kMultipliers + kWarp,
                      std::max(S::kSharedBytes, spread_bytes(blocks, S::kShare, processors)),
                      stream, params);
  });
}

}  // namespace

cudaError_t set_up_whole_rows() {
  const cudaError_t error = set_up_rows<true>();
  return error == cudaSuccess ? set_up_rows<false>() : error;
}

bool can_attend_whole_rows(const AttentionWork& work) {
  constexpr uint32_t kMostSpans = 4;  // of few rows: they are one after the other
  const uint32_t dim = work.cache.head_dim, group = work.attention.heads / work.cache.heads;
  const bool is_usual = dim == work.cache.stride && (dim == 64 || dim == 128 || dim == 256);
  const bool are_many = work.out.rows * work.cache.heads > work.batch.processors;
  return is_usual && is_streamed(work.cache) && group <= kColumns && is_aligned(work.out) &&
         work.heads.in_fours(dim) && (are_many || work.batch.spans <= kMostSpans);
}

void attend_whole_rows(const SpanParams& params, uint32_t processors, cudaStream_t stream) {
  params.out.rows* params.cache.heads > processors ? launch_rows<false>(params, processors, stream)
                                                   : launch_rows<true>(params, processors, stream);
}

}  // namespace skein::cuda
