#include "backend/reference/linear.h"

#include <vector>

#include "backend/arithmetic.h"
#include "backend/weight_groups.h"

namespace skein::reference {
namespace {

using arithmetic::fma;
using arithmetic::kGroup;

// Columns [begin, end) of a group.
float add_dot(const GroupFormat& format, const WeightGroup& weights, size_t half,
              const arithmetic::QuantizedGroup& x, size_t begin, size_t end, float sum) {
  int32_t dot = 0, x_sum = 0;
  for (size_t k = begin; k < end; ++k) {
    dot += format.value(weights.code[k]) * x.q[k];
    x_sum += x.q[k];
  }
  sum = fma(arithmetic::product_of_dot(dot, format.scale(weights.scale[half])), x.scale, sum);
  if (!format.has_minimum) return sum;
  return fma(format.scale(weights.minimum[half]), x.scale * static_cast<float>(x_sum), sum);
}

float add_group(const GroupFormat& format, const WeightGroup& weights,
                const arithmetic::QuantizedGroup& x, float sum) {
  if (!format.halves) return add_dot(format, weights, 0, x, 0, kGroup, sum);
  sum = add_dot(format, weights, 0, x, 0, kGroup / 2, sum);
  return add_dot(format, weights, 1, x, kGroup / 2, kGroup, sum);
}

float as_bf16(float x) {
  return arithmetic::float_of_bf16(arithmetic::round_to_bf16(x));
}

float dot_bf16(std::span<const float> x, std::span<const float> weights) {
  float sum = 0;
  for (size_t first = 0; first < x.size(); first += kGroup) {
    float chain[2] = {0, 0};  // even, odd
    for (size_t k = first; k < first + kGroup; ++k) {
      const float a = k < x.size() ? as_bf16(x[k]) : 0.0F;
      const float b = k < x.size() ? as_bf16(weights[k]) : 0.0F;
      chain[k % 2] = fma(a, b, chain[k % 2]);
    }
    sum = sum + (chain[0] + chain[1]);
  }
  return sum;
}

void multiply_g32(const WeightView& part, size_t row, Rows x, std::span<float> out) {
  const GroupFormat format = *group_format(part);
  std::vector<WeightGroup> groups(x.width / kGroup);
  read_groups(part, row, groups);
  for (size_t i = 0; i < x.rows; ++i) {
    out[i] = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto activations = arithmetic::quantize_group(x.row(i) + g * kGroup);
      out[i] = add_group(format, groups[g], activations, out[i]);
    }
  }
}

}  // namespace

void multiply_row(Definition definition, const WeightView& part, size_t row, Rows x,
                  std::span<float> out) {
  if (definition == Definition::kG32) return multiply_g32(part, row, x, out);
  std::vector<float> weights(x.width);
  dequantize_row(part, row, weights);
  for (size_t i = 0; i < x.rows; ++i) {
    out[i] = definition == Definition::kF32 ? arithmetic::dot(x.row(i), weights.data(), x.width)
                                            : dot_bf16({x.row(i), x.width}, weights);
  }
}

}  // namespace skein::reference
