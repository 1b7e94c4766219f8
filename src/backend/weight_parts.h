// WeightParts: the parts of a matrix as files have them, seen as one matrix of float32 rows. Plain
// views; whoever owns the bytes must outlive it. Const calls are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace skein {

// The arithmetic of products with a weight (arithmetic.h).
enum class ProductType : uint8_t { kF32, kG32, kBF16, kF16 };

ProductType product_type_of(Precision precision, const WeightView& view,
                            Profile profile = Profile::kHost);

// Outputs of a view, which are all dimensions but the last, and inputs.
size_t rows_of(const WeightView& view);
size_t columns_of(const WeightView& view);

// In the file.
uint64_t bytes_of(const WeightView& view);

// Row `row` of a view, as tensor/dequantize.h and tensor/quant/affine.h define it. `out` has as
// many elements as the view has columns.
void dequantize_row(const WeightView& view, size_t row, std::span<float> out);

// `consumed` for what holds rows [first, first + count) of a view.
void consume_rows(const WeightView& view, size_t first, size_t count, const Consumed& consumed);

class WeightParts {
 public:
  // kInvalidArgument when there are no parts or their inputs differ (both shapes), kUnimplemented
  // for an element type without float values (its name).
  static Result<WeightParts> of(std::span<const WeightView> parts);

  size_t outputs() const { return first_rows_.back(); }
  size_t inputs() const { return inputs_; }
  uint64_t bytes() const { return bytes_; }

  std::span<const WeightView> parts() const { return parts_; }
  // Part i has rows [first_row(i), first_row(i + 1)).
  size_t first_row(size_t part) const { return first_rows_[part]; }

  // The part that has row `row` of the whole.
  size_t part_of(size_t row) const;
  // Row `row` of the whole. `out` has inputs() elements.
  void dequantize_row(size_t row, std::span<float> out) const;

 private:
  WeightParts() = default;

  std::vector<WeightView> parts_;
  std::vector<size_t> first_rows_;  // and, last, the number of all
  size_t inputs_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace skein
