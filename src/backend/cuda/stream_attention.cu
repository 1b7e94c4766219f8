// Attention over a cache of bfloat16, a span at a time. Blocks of the cache that no row of the step
// writes are copied before the kernel before has ended.
#include "backend/cuda/span_ring.cuh"

namespace skein::cuda {
namespace {

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
      if (p_.skips_prompts && is_of_prompt(p_.step, row_)) {
        row_ += p_.step.rows_left[row_];
        continue;
      }
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
    end_ = min(row_ + p_.rows_of_unit, p_.heads.rows[0].rows);
    index_ += gridDim.x;
    return true;
  }

  const SpanParams& p_;
  const dim3& all_;
  uint32_t index_ = blockIdx.x, row_ = 0, end_ = 0, heads_ = 0, span_ = 0;
};

template <class S>
__device__ void copy_items(const SpanParams& p, const dim3& all, const SpanRing<S>& ring) {
  bool has_waited = false;
  SlotPlace<S::kSlots> place;
  Items items(p, all);
  SpanItem item;
  for (Queries own; items.next(item, own);) {
    const uint32_t written = (own.position - p.step.places[own.first_row]) / kBlockTokens;
    copy_span<S>(p, own, p.first_span + item.span, ring, place, [&](uint32_t block) {
      if (has_waited || block < written) return;
      wait_for_kernel_before();
      has_waited = true;
    });
  }
  if (!has_waited) wait_for_kernel_before();
}

template <class S>
__global__ void __launch_bounds__(kThreads + kWarp, S::kShare)
    attend_in_ring(const __grid_constant__ SpanParams p, const dim3 all) {
  extern __shared__ __align__(1024) std::byte ring_memory[];
  __shared__ SpanSoftmax softmax;
  const SpanRing<S> ring(ring_memory);
  ring.set_up();
  let_next_kernel_begin();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) copy_items<S>(p, all, ring);
    return;
  }
  wait_for_kernel_before();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  SlotPlace<S::kSlots> place;
  Items items(p, all);
  SpanItem item;
  for (Queries own; items.next(item, own);) {
    float sums[S::kTiles][4] = {};
    load_queries(p, own, ring.queries, S::kQueryStride);
    sync_multipliers();
    sum_span<S>(p, own, p.first_span + item.span, ring, place, softmax, sums);
    write_softmax(p, own, item.span, softmax.largest, softmax.sums);
    const ValuePlaces places(p, own, item.span, lane);
#pragma unroll
    for (uint32_t i = 0; i < S::kTiles; ++i) places.write((warp + i * kWarps) * 8, lane, sums[i]);
  }
}

}  // namespace

cudaError_t set_up_streams() {
  return set_up_shapes([](auto shape) {
    using S = decltype(shape);
    return cudaFuncSetAttribute(attend_in_ring<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                S::kSharedBytes);
  });
}

bool is_streamed(const DeviceKv& cache) {
  return cache.type == KvType::kBf16 && cache.stride <= kMostStride;
}

void attend_streamed(const SpanParams& params, dim3 all, const SpanBatch& batch,
                     cudaStream_t stream) {
  all.x = groups_of(all.x, params.rows_of_unit);
  const uint32_t items = all.x * all.y * all.z;
  with_shape(params.cache, [&](auto shape) {
    using S = decltype(shape);
    const uint32_t blocks =
        batch.processors == 0 ? items : std::min(items, batch.processors * S::kShare);
    launch_overlapped(attend_in_ring<S>, blocks, kThreads + kWarp, S::kSharedBytes, stream, params,
                      all);
  });
}

}  // namespace skein::cuda
