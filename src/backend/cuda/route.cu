// Routing: which experts a row goes to, and with what weights. A row is a warp's.
#include "backend/cuda/launch.cuh"

namespace skein::cuda {
namespace {

__device__ bool is_among(uint32_t expert, const uint32_t* chosen, uint32_t count) {
  for (uint32_t j = 0; j < count; ++j) {
    if (chosen[j] == expert) return true;
  }
  return false;
}

struct Candidate {
  float logit;
  uint32_t expert;  // UINT32_MAX: none
};

__device__ Candidate better(const Candidate& a, const Candidate& b) {
  if (a.expert == UINT32_MAX || b.expert == UINT32_MAX) return a.expert == UINT32_MAX ? b : a;
  if (a.logit > b.logit) return a;
  if (b.logit > a.logit) return b;
  return a.expert < b.expert ? a : b;
}

// The best of those that are not chosen yet. One that goes through them in order begins with the
// first, and where that is NaN nothing is larger; any other NaN is never larger itself.
__device__ uint32_t best_of_the_rest(const float* logits, uint32_t experts, const uint32_t* chosen,
                                     uint32_t count, uint32_t thread) {
  uint32_t first = 0;
  while (is_among(first, chosen, count)) ++first;
  if (isnan(logits[first])) return first;
  Candidate best{0, UINT32_MAX};
  for (uint32_t e = thread; e < experts; e += kWarp) {
    if (isnan(logits[e]) || is_among(e, chosen, count)) continue;
    best = better(best, {logits[e], e});
  }
  for (uint32_t half = kWarp / 2; half > 0; half /= 2) {
    const Candidate other{__shfl_xor_sync(0xffffffffU, best.logit, half),
                          __shfl_xor_sync(0xffffffffU, best.expert, half)};
    best = better(best, other);
  }
  return best.expert;
}

__device__ float chain(const float* values, uint32_t count) {
  float sum = 0;
  for (uint32_t j = 0; j < count; ++j) sum = sum + values[j];
  return sum;
}

__device__ float sum_of_exps(const float* logits, uint32_t count, float max, uint32_t thread) {
  float lane = 0;
  for (uint32_t e = thread % kLaneThreads; e < groups_of(count, kLaneThreads) * kLaneThreads;
       e += kLaneThreads) {
    lane = lane + (e < count ? arithmetic::exp(logits[e] - max) : 0.0F);
  }
  return sum_of_lanes(lane);
}

__device__ void divide(float* values, uint32_t count, float by, uint32_t thread) {
  __syncwarp();  // all have read them
  for (uint32_t j = thread; j < count; j += kWarp) values[j] = values[j] / by;
  __syncwarp();
}

}  // namespace

void route(DeviceRows x, RouterKind kind, const DeviceRoutes& routes, cudaStream_t stream) {
  launch_warps(x.rows, stream, [=] __device__(uint32_t row, uint32_t thread) {
    const float* const logits = row_at(x, row);
    const uint32_t used = routes.used;
    uint32_t* const experts = routes.experts + row * used;
    float* const weights = routes.weights + row * used;
    for (uint32_t j = 0; j < used; ++j) {
      const uint32_t best = best_of_the_rest(logits, x.width, experts, j, thread);
      __syncwarp();
      if (thread == 0) experts[j] = best;
      __syncwarp();
    }
    const float max = logits[experts[0]];
    for (uint32_t j = thread; j < used; j += kWarp) {
      weights[j] = arithmetic::exp(logits[experts[j]] - max);
    }
    __syncwarp();
    const float total = kind == RouterKind::kTopThenSoftmax
                            ? chain(weights, used)
                            : sum_of_exps(logits, x.width, max, thread);
    divide(weights, used, total, thread);
    if (kind == RouterKind::kSoftmaxThenTopNormalized) {
      divide(weights, used, chain(weights, used), thread);
    }
  });
}

}  // namespace skein::cuda
