// Affine groups, as MLX quantizes: value = scale * q + bias, with one scale and one bias per group
// of consecutive elements of a row, and the q packed into 32-bit words, lowest bits first.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/tensor.h"

namespace skein {

struct AffineFormat {
  uint32_t bits = 0;   // of a q: 4 or 8
  uint32_t group = 0;  // elements: 32, 64 or 128
};

// Three tensors that are one matrix. Made by AffineView::of, which guarantees that they fit
// together.
class AffineView {
 public:
  // packed is U32 [..., K * bits / 32]; scales and biases are float tensors [..., K / group].
  // Errors say which of the three does not fit.
  static Result<AffineView> of(const TensorView& packed, const TensorView& scales,
                               const TensorView& biases, AffineFormat format);

  const Shape& shape() const { return shape_; }  // of the values: [..., K]
  AffineFormat format() const { return format_; }
  const TensorView& packed() const { return packed_; }
  const TensorView& scales() const { return scales_; }
  const TensorView& biases() const { return biases_; }

  // The reference: float32 multiply, then add. `out` has K elements.
  void dequantize_row(uint64_t row, std::span<float> out) const;

 private:
  TensorView packed_, scales_, biases_;
  AffineFormat format_;
  Shape shape_;
};

}  // namespace skein
