#include "backend/reference/linear.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/f16_products.h"
#include "backend/host/memory.h"
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

// The sum over all groups, or over those that `takes`.
template <class Takes>
float sum_bf16(std::span<const float> x, std::span<const float> weights, const Takes& takes) {
  float sum = 0;
  for (size_t first = 0; first < x.size(); first += kGroup) {
    if (!takes(first)) continue;
    float chain[2] = {0, 0};  // even, odd
    for (size_t k = first; k < std::min(first + kGroup, x.size()); ++k) {
      chain[k % 2] = fma(as_bf16(x[k]), as_bf16(weights[k]), chain[k % 2]);
    }
    sum = sum + (chain[0] + chain[1]);
  }
  return sum;
}

float dot_bf16(std::span<const float> x, std::span<const float> weights) {
  return sum_bf16(x, weights, [](size_t) { return true; });
}

// nullopt where no group has one.
std::optional<float> residual_bf16(std::span<const float> x, std::span<const float> weights) {
  const auto at = [&](size_t k) { return x[k]; };
  const float squares = arithmetic::sum_of_products(x.size(), at, at);
  std::vector<float> residuals(x.size());
  for (size_t k = 0; k < x.size(); ++k) residuals[k] = x[k] - as_bf16(x[k]);
  bool any = false;
  const float sum = sum_bf16(residuals, weights, [&](size_t first) {
    float largest = 0;
    for (size_t k = first; k < std::min(first + kGroup, x.size()); ++k) {
      largest = arithmetic::larger(std::abs(x[k]), largest);
    }
    const bool has_residual = arithmetic::has_residual(largest, squares, x.size());
    any = any || has_residual;
    return has_residual;
  });
  return any ? std::optional(sum) : std::nullopt;
}

struct Outlier {
  size_t column;
  float x;
};

// The largest magnitude of a group, the first among equals; a NaN is larger than any number.
Outlier largest_of(const float* x, size_t first) {
  const auto magnitude = [&](size_t k) { return arithmetic::bits_of_float(x[k]) & 0x7fffffffU; };
  size_t largest = first;
  for (size_t k = first; k < first + kGroup; ++k) {
    if (magnitude(k) > magnitude(largest)) largest = k;
  }
  return {largest, x[largest]};
}

// Those of a row, in the order of columns.
std::vector<Outlier> outliers_of(std::span<const float> x) {
  std::vector<Outlier> largest;
  float sum = 0;
  for (size_t first = 0; first < x.size(); first += kGroup) {
    largest.push_back(largest_of(x.data(), first));
    sum = sum + std::abs(largest.back().x);
  }
  std::erase_if(largest, [&](const Outlier& own) {
    return !arithmetic::is_outlier(std::abs(own.x), sum, x.size() / kGroup);
  });
  return largest;
}

float weight_at(const GroupFormat& format, const WeightGroup& group, size_t k) {
  const size_t half = format.halves ? k / (kGroup / 2) : 0;
  const auto value = static_cast<float>(format.value(group.code[k]));
  const float scale = format.scale(group.scale[half]);
  return format.has_minimum ? fma(value, scale, format.scale(group.minimum[half])) : value * scale;
}

float dot_g32(const GroupFormat& format, std::span<const WeightGroup> groups,
              std::span<const float> x, const float* bias) {
  const std::vector<Outlier> outliers = outliers_of(x);
  std::vector<float> rest(x.begin(), x.end());
  for (const Outlier& outlier : outliers) rest[outlier.column] = 0;
  float sum = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    sum = add_group(format, groups[g], arithmetic::quantize_group(&rest[g * kGroup]), sum);
  }
  if (bias != nullptr) sum = sum + *bias;
  for (const auto& [column, value] : outliers) {
    sum = fma(value, weight_at(format, groups[column / kGroup], column % kGroup), sum);
  }
  return sum;
}

void multiply_g32(const WeightView& part, size_t row, Rows x, const float* bias,
                  std::span<float> out) {
  const GroupFormat format = *group_format(part);
  std::vector<WeightGroup> groups(x.width / kGroup);
  read_groups(part, row, groups);
  for (size_t i = 0; i < x.rows; ++i) {
    out[i] = dot_g32(format, groups, {row_of(x, i), x.width}, bias);
  }
}

// A row of float16 numbers with zeros up to a whole number of groups.
struct F16Row {
  explicit F16Row(std::span<const float> x)
      : values((x.size() + arithmetic::kF16Group - 1) / arithmetic::kF16Group *
               arithmetic::kF16Group),
        exponent(arithmetic::round_row_to_f16(x.data(), x.size(), values.data())) {}

  std::vector<uint16_t> values;
  int32_t exponent;
};

float dot_f16(const F16Row& x, const F16Row& weights, const arithmetic::F16Segments& segments) {
  float total = 0;
  for (size_t s = 0; s < segments.count; ++s) {
    const size_t first = s * segments.inputs;
    const size_t end = std::min(first + segments.inputs, x.values.size());
    float sum = 0;
    for (size_t k = first; k < end; k += arithmetic::kF16Group) {
      sum = arithmetic::add_f16_products(sum, &weights.values[k], &x.values[k]);
    }
    total = s == 0 ? sum : total + sum;
  }
  return total * arithmetic::power_of_two(-weights.exponent) *
         arithmetic::power_of_two(-x.exponent);
}

}  // namespace

void multiply_row_f16(const WeightView& part, size_t row, size_t outputs, Rows x, const float* bias,
                      std::span<float> out) {
  std::vector<float> values(x.width);
  dequantize_row(part, row, values);
  const F16Row weights(values);
  const auto segments = arithmetic::f16_segments(outputs, x.width);
  for (size_t i = 0; i < x.rows; ++i) {
    const F16Row in({row_of(x, i), x.width});
    out[i] = dot_f16(in, weights, segments);
    if (bias != nullptr) out[i] = out[i] + *bias;
  }
}

void multiply_row(ProductType product_type, const WeightView& part, size_t row, Rows x,
                  const float* bias, std::span<float> out) {
  if (product_type == ProductType::kG32) return multiply_g32(part, row, x, bias, out);
  std::vector<float> weights(x.width);
  dequantize_row(part, row, weights);
  for (size_t i = 0; i < x.rows; ++i) {
    const std::span<const float> in(row_of(x, i), x.width);
    if (product_type == ProductType::kF32)
      out[i] = arithmetic::dot(in.data(), weights.data(), x.width);
    if (product_type == ProductType::kBF16) out[i] = dot_bf16(in, weights);
    if (bias != nullptr) out[i] = out[i] + *bias;
    if (product_type != ProductType::kBF16) continue;
    if (const auto residual = residual_bf16(in, weights)) out[i] = out[i] + *residual;
  }
}

}  // namespace skein::reference
