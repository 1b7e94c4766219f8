// Heads on their way to attention on tensor cores: as turn_and_store in attention.cu, but it begins
// while the kernel before it still runs, and can add up the segments of the product that made them.
#include <type_traits>

#include "backend/cuda/heads.cuh"
#include "backend/cuda/heads.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/segment_sums.cuh"

namespace skein::cuda {
namespace {

struct HeadParams : DeviceHeads {
  StepView step;
  DeviceKv cache;
};

// kAdds: so many numbers of the planes at once; 0: there are none.
template <KvType kType, uint32_t kAdds>
__global__ void __launch_bounds__(kThreads)
    prepare_heads_of_rows(const __grid_constant__ HeadParams p) {
  extern __shared__ __align__(16) float heads_of_block[];
  const uint32_t query_heads = p.rows[0].width / p.cache.head_dim;
  const uint32_t heads = query_heads + 2 * p.cache.heads;
  const uint32_t warp = threadIdx.x / kWarp, thread = threadIdx.x % kWarp;
  const uint32_t item = blockIdx.x * (kThreads / kWarp) + warp;
  let_next_kernel_begin();
  // The step's record is there since before the first kernel.
  const uint32_t row = min(item / heads, p.rows[0].rows - 1);
  const RowSlot place(p.step, row);
  const uint32_t head = item % heads, dim = p.cache.head_dim;
  const uint32_t kind = head < query_heads ? 0 : head < query_heads + p.cache.heads ? 1 : 2;
  const uint32_t first = kind == 0 ? head : (head - query_heads) % p.cache.heads;
  if (kAdds > 0 && 8 * thread < dim) {
    fetch_scales(p.sums, p.first_outputs[kind] + first * dim + 8 * thread);
  }
  wait_for_kernel_before();
  if (item >= p.rows[0].rows * heads) return;
  float* const values = row_at(p.rows[kind], row) + size_t{first} * dim;
  float* const own = heads_of_block + warp * dim;
  const bool turns = kind != 2 && p.angles.data != nullptr;
  if (turns && thread * kWarp < p.angles.width) {  // on their way while heads are
    asm volatile("prefetch.global.L1 [%0];" ::"l"(row_at(p.angles, row) + thread * kWarp));
  }
  if constexpr (kAdds == 0) {
#pragma unroll 4
    for (uint32_t d = thread; d < dim; d += kWarp) own[d] = values[d];
  } else {
    const uint32_t output = p.first_outputs[kind] + first * dim;
    for (uint32_t d = kAdds * thread; d < dim; d += kAdds * kWarp) {
      *reinterpret_cast<Outputs<kAdds>*>(own + d) = product_at<kAdds>(p.sums, row, output + d);
    }
  }
  __syncwarp();
  if (turns) turn_head(own, p.layout, p.angles, row, thread);
  if (kAdds > 0 || turns) {
    for (uint32_t d = thread; d < dim; d += kWarp) values[d] = own[d];
  }
  if (kind != 0) store_row<kType>(own, kind == 1, place, first, p.cache, thread);
}

}  // namespace

bool DeviceHeads::in_fours(uint32_t head_dim) const {
  bool all = head_dim % 4 == 0;
  for (uint32_t i = 0; i < 3; ++i) {
    all = all && (sums.planes == nullptr ? is_aligned(rows[i]) : first_outputs[i] % 4 == 0);
  }
  return all && sums.outputs % 4 == 0;
}

void prepare_heads(const DeviceHeads& heads, const StepView& step, const DeviceKv& cache,
                   cudaStream_t stream) {
  const HeadParams params{heads, step, cache};
  const DeviceRows& q = heads.rows[0];
  const uint32_t items = q.rows * (q.width / cache.head_dim + 2 * cache.heads);
  const auto launch = [&]<uint32_t kAdds>(std::integral_constant<uint32_t, kAdds>) {
    const uint32_t warps = kThreads / kWarp;
    launch_overlapped(cache.type == KvType::kBf16 ? prepare_heads_of_rows<KvType::kBf16, kAdds>
                                                  : prepare_heads_of_rows<KvType::kInt8, kAdds>,
                      groups_of(items, warps), kThreads,
                      size_t{warps} * cache.head_dim * sizeof(float), stream, params);
  };
  if (heads.sums.planes == nullptr) return launch(std::integral_constant<uint32_t, 0>());
  heads.in_fours(cache.head_dim) ? launch(std::integral_constant<uint32_t, 4>())
                                 : launch(std::integral_constant<uint32_t, 1>());
}

}  // namespace skein::cuda
