// Ops on rows alone: norms, activations, angles, logits, gathering.
#include "backend/cuda/activated.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/peaks.h"

namespace skein::cuda {
namespace {

using arithmetic::fma;

// One part of a row by a warp, both halves of which have the same 16 lanes.
__device__ void norm_part(const float* x, uint32_t width, const DeviceNorm& params,
                          const float* weight, const float* bias, float* out, uint32_t thread) {
  const auto count = static_cast<float>(width);
  const uint32_t padded = groups_of(width, kLaneThreads) * kLaneThreads;
  const bool centers = params.kind == NormKind::kLayer;
  float mean = 0;
  if (centers) {
    float lane = 0;
    for (uint32_t k = thread % kLaneThreads; k < padded; k += kLaneThreads) {
      lane = lane + (k < width ? x[k] : 0.0F);
    }
    mean = sum_of_lanes(lane) / count;
  }
  float lane = 0;
  for (uint32_t k = thread % kLaneThreads; k < padded; k += kLaneThreads) {
    const float y = k >= width ? 0.0F : centers ? x[k] - mean : x[k];
    lane = fma(y, y, lane);
  }
  const float variance = sum_of_lanes(lane) / count;
  const float scale = 1.0F / sqrtf(variance + params.epsilon);
  for (uint32_t k = thread; k < width; k += kWarp) {
    float y = (centers ? x[k] - mean : x[k]) * scale;
    if (weight != nullptr) y = y * weight[k];
    if (bias != nullptr) y = y + bias[k];
    out[k] = y;
  }
}

}  // namespace

void take_up(const uint32_t* from, uint32_t* to, size_t words, cudaStream_t stream) {
  const auto* const pieces = reinterpret_cast<const uint4*>(from);
  auto* const taken = reinterpret_cast<uint4*>(to);
  launch_elements(1, static_cast<uint32_t>((words + 3) / 4), stream,
                  [=] __device__(uint32_t, uint32_t i) { taken[i] = pieces[i]; });
}

void embed(const DeviceMatrix& table, const StepView& step, float scale, DeviceRows out,
           cudaStream_t stream) {
  launch_elements(out.rows, out.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    int32_t token = step.tokens[row];
    if (token < 0) token = static_cast<int32_t>((*step.before)[~token].index());
    row_at(out, row)[k] = scale * table.weights[token * table.stride + k];
  });
}

void norm(DeviceRows x, const DeviceNorm& params, DeviceRows out, cudaStream_t stream) {
  const uint32_t width = x.width / params.parts;
  launch_warps(x.rows * params.parts, stream, [=] __device__(uint32_t item, uint32_t thread) {
    const uint32_t row = item / params.parts, first = item % params.parts * width;
    const uint32_t own = params.weight_per_part ? first : 0;
    norm_part(row_at(x, row) + first, width, params,
              params.weight == nullptr ? nullptr : params.weight + own,
              params.bias == nullptr ? nullptr : params.bias + own, row_at(out, row) + first,
              thread);
  });
}

void add(DeviceRows x, DeviceRows delta, float scale, cudaStream_t stream) {
  launch_elements(x.rows, x.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    row_at(x, row)[k] = fma(scale, row_at(delta, row)[k], row_at(x, row)[k]);
  });
}

void activate(DeviceRows x, const ActivationParams& params, DeviceRows out, cudaStream_t stream) {
  launch_elements(out.rows, out.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    const float* const in = row_at(x, row);
    float gate[1] = {in[k]};
    const float up[1] = {x.width > out.width ? in[out.width + k] : 0.0F};
    activate(params, gate, up);
    row_at(out, row)[k] = gate[0];
  });
}

void rope_angles(const StepView& step, const float* frequencies, float magnitude, DeviceRows out,
                 cudaStream_t stream) {
  const uint32_t half = out.width / 2;
  launch_elements(out.rows, half, stream, [=] __device__(uint32_t row, uint32_t j) {
    const auto position = static_cast<float>(step.positions[row]);
    const arithmetic::CosSin angle = arithmetic::cos_sin(position * frequencies[j]);
    row_at(out, row)[j] = angle.cos * magnitude;
    row_at(out, row)[half + j] = angle.sin * magnitude;
  });
}

void combine(DeviceRows x, const DeviceRoutes& routes, DeviceRows out, cudaStream_t stream) {
  launch_elements(out.rows, out.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    float sum = 0;
    for (uint32_t j = row * routes.used; j < (row + 1) * routes.used; ++j) {
      sum = fma(routes.weights[j], row_at(x, j)[k], sum);
    }
    row_at(out, row)[k] = sum;
  });
}

void gather(DeviceRows x, const StepView& step, DeviceRows out, cudaStream_t stream) {
  launch_elements(out.rows, out.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    row_at(out, row)[k] = row_at(x, step.logit_rows[row])[k];
  });
}

void finish_logits(DeviceRows x, float scale, float softcap, cudaStream_t stream) {
  launch_elements(x.rows, x.width, stream, [=] __device__(uint32_t row, uint32_t k) {
    row_at(x, row)[k] = arithmetic::cap(row_at(x, row)[k] * scale, softcap);
  });
}

}  // namespace skein::cuda
