// Products with float32 weights. 16 threads side by side are the lanes of a sum; they keep several
// sums at once, of neighbouring outputs and rows, so that what is read is used more than once.
#include "backend/cuda/launch.cuh"

namespace skein::cuda {
namespace {

constexpr uint32_t kOutputsAtOnce = 4;
constexpr uint32_t kOutputsOfBlock = kThreads / kLaneThreads * kOutputsAtOnce;

// The sums of kOutputsAtOnce outputs and kRows rows. Addresses beyond the last output or row are
// those of the last, and the sum is not used.
template <uint32_t kRows>
__device__ void sum_products(const float* const (&x)[kRows],
                             const float* const (&weights)[kOutputsAtOnce], uint32_t inputs,
                             uint32_t lane, float (&sums)[kRows][kOutputsAtOnce]) {
  for (auto& row : sums) {
    for (float& sum : row) sum = 0;
  }
  const auto take = [&](uint32_t k, bool inside) {
    float w[kOutputsAtOnce];
#pragma unroll
    for (uint32_t n = 0; n < kOutputsAtOnce; ++n) w[n] = weights[n][k];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const float value = inside ? x[r][k] : 0.0F;
#pragma unroll
      for (uint32_t n = 0; n < kOutputsAtOnce; ++n) {
        sums[r][n] = arithmetic::fma(value, w[n], sums[r][n]);
      }
    }
  };
  uint32_t k = lane;
#pragma unroll 4
  for (; k < inputs / kLaneThreads * kLaneThreads; k += kLaneThreads) take(k, true);
  if (inputs % kLaneThreads != 0) take(k, k < inputs);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint32_t n = 0; n < kOutputsAtOnce; ++n) sums[r][n] = sum_of_lanes(sums[r][n]);
  }
}

template <uint32_t kRows>
__global__ void __launch_bounds__(kThreads)
    multiply_rows(DeviceRows x, DeviceMatrix matrix, const float* bias, DeviceRows out) {
  const uint32_t lane = threadIdx.x % kLaneThreads;
  const uint32_t first = blockIdx.x * kOutputsOfBlock + threadIdx.x / kLaneThreads * kOutputsAtOnce;
  const float* weights[kOutputsAtOnce];
  for (uint32_t n = 0; n < kOutputsAtOnce; ++n) {
    weights[n] = matrix.weights + min(first + n, matrix.outputs - 1) * matrix.stride;
  }
  for (uint32_t row = blockIdx.y * kRows; row < out.rows; row += gridDim.y * kRows) {
    const float* in[kRows];
    for (uint32_t r = 0; r < kRows; ++r) in[r] = row_at(x, min(row + r, x.rows - 1));
    float sums[kRows][kOutputsAtOnce];
    sum_products<kRows>(in, weights, matrix.inputs, lane, sums);
    if (lane != 0) continue;
    for (uint32_t r = 0; r < kRows && row + r < out.rows; ++r) {
      for (uint32_t n = 0; n < kOutputsAtOnce && first + n < matrix.outputs; ++n) {
        row_at(out, row + r)[first + n] =
            bias == nullptr ? sums[r][n] : sums[r][n] + bias[first + n];
      }
    }
  }
}

template <uint32_t kRows>
void launch_multiply(DeviceRows x, const DeviceMatrix& matrix, const float* bias, DeviceRows out,
                     cudaStream_t stream) {
  const dim3 grid(groups_of(matrix.outputs, kOutputsOfBlock),
                  std::min(groups_of(out.rows, kRows), kMostGridRows));
  multiply_rows<kRows><<<grid, kThreads, 0, stream>>>(x, matrix, bias, out);
}

// A row of the output at a time, since its neighbours go to other experts.
__global__ void __launch_bounds__(kThreads)
    multiply_expert_rows(DeviceRows x, ExpertTable table, DeviceMatrix shape, const float* biases,
                         DeviceRoutes routes, DeviceRows out) {
  const uint32_t lane = threadIdx.x % kLaneThreads;
  const uint32_t first = blockIdx.x * kOutputsOfBlock + threadIdx.x / kLaneThreads * kOutputsAtOnce;
  for (uint32_t row = blockIdx.y; row < out.rows; row += gridDim.y) {
    const uint32_t expert = routes.experts[row];
    if (expert < table.first || expert - table.first >= table.count) continue;
    const float* weights[kOutputsAtOnce];
    for (uint32_t n = 0; n < kOutputsAtOnce; ++n) {
      weights[n] =
          table.weights[expert - table.first] + min(first + n, shape.outputs - 1) * shape.stride;
    }
    const float* const in[] = {row_at(x, x.rows == out.rows ? row : row / routes.used)};
    float sums[1][kOutputsAtOnce];
    sum_products<1>(in, weights, shape.inputs, lane, sums);
    if (lane != 0) continue;
    for (uint32_t n = 0; n < kOutputsAtOnce && first + n < shape.outputs; ++n) {
      const size_t at = size_t{expert} * shape.outputs + first + n;
      row_at(out, row)[first + n] = biases == nullptr ? sums[0][n] : sums[0][n] + biases[at];
    }
  }
}

}  // namespace

void multiply(DeviceRows x, const DeviceMatrix& matrix, const float* bias, DeviceRows out,
              cudaStream_t stream) {
  if (out.rows == 0 || matrix.outputs == 0) return;
  if (out.rows == 1) return launch_multiply<1>(x, matrix, bias, out, stream);
  if (out.rows <= 4) return launch_multiply<4>(x, matrix, bias, out, stream);
  launch_multiply<8>(x, matrix, bias, out, stream);
}

void multiply_experts(DeviceRows x, const ExpertTable& table, const DeviceMatrix& shape,
                      const float* biases, const DeviceRoutes& routes, DeviceRows out,
                      cudaStream_t stream) {
  if (out.rows == 0 || shape.outputs == 0) return;
  const dim3 grid(groups_of(shape.outputs, kOutputsOfBlock), std::min(out.rows, kMostGridRows));
  multiply_expert_rows<<<grid, kThreads, 0, stream>>>(x, table, shape, biases, routes, out);
}

}  // namespace skein::cuda
