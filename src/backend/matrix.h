// Weights, before and after a backend has made them its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>

#include "tensor/quant/affine.h"
#include "tensor/tensor.h"

namespace skein {

// A matrix as a file has it: [N outputs, K inputs].
using WeightView = std::variant<TensorView, AffineView>;

// The same after the backend has made it its own: the parts that were given, one below the other,
// each of its own definition (arithmetic.h), which the element type and the backend's precision
// decide.
class Matrix {
 public:
  virtual ~Matrix() = default;
  size_t outputs() const { return outputs_; }
  size_t inputs() const { return inputs_; }
  uint64_t bytes() const { return bytes_; }  // that a multiplication reads
  // Whether it goes on reading the views it was made of; if not, they may go.
  bool reads_views() const { return reads_views_; }

 protected:
  Matrix(size_t outputs, size_t inputs, uint64_t bytes, bool reads_views)
      : outputs_(outputs), inputs_(inputs), bytes_(bytes), reads_views_(reads_views) {}

 private:
  size_t outputs_, inputs_;
  uint64_t bytes_;
  bool reads_views_;
};

// Told of bytes of a matrix's views that will not be read again, on the thread that makes it, as it
// goes.
using Consumed = std::function<void(std::span<const std::byte> bytes)>;

}  // namespace skein
