// WeightParts: the parts of a matrix as files have them, seen as one matrix of float32 rows. Plain
// views; whoever owns the bytes must outlive it. Const calls are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace skein {

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

  // Row `row` of the whole, as tensor/dequantize.h defines it. `out` has inputs() elements.
  void dequantize_row(size_t row, std::span<float> out) const;

 private:
  WeightParts() = default;

  std::vector<WeightView> parts_;
  std::vector<size_t> first_rows_;  // and, last, the number of all
  size_t inputs_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace skein
