// Shapes and views of tensors that somebody else owns. Plain values; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/element_type.h"

namespace skein {

inline constexpr size_t kMaxDims = 8;

// Dimensions, outermost first, as NumPy and safetensors write them: a matrix that maps K inputs to
// N outputs is [N, K], and its rows of K elements are contiguous. (GGUF writes the same matrix K,
// N.)
class Shape {
 public:
  Shape() = default;  // no dimensions: a scalar
  Shape(std::initializer_list<uint64_t> dims);

  // kOutOfRange when there are more than kMaxDims.
  static Result<Shape> of(std::span<const uint64_t> dims);

  size_t rank() const { return rank_; }
  uint64_t operator[](size_t i) const { return dims_[i]; }
  std::span<const uint64_t> dims() const { return {dims_.data(), rank_}; }
  uint64_t columns() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }  // the innermost dimension

  // kOutOfRange when the product does not fit 63 bits.
  Result<uint64_t> checked_elements() const;

  std::string to_string() const;  // "[49152, 576]"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<uint64_t, kMaxDims> dims_{};
  size_t rank_ = 0;
};

// The bytes that `shape` takes in `type`. kInvalidArgument when a row is not a whole number of
// blocks, kOutOfRange when the size does not fit 63 bits.
Result<uint64_t> checked_byte_size(ElementType type, const Shape& shape);

// A tensor in memory: contiguous, rows after each other. Whoever makes one guarantees that bytes is
// exactly checked_byte_size(type, shape) long. The bytes of a file may be aligned to a single byte,
// so elements are read with memcpy.
struct TensorView {
  ElementType type = ElementType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;

  uint64_t elements() const;
  uint64_t rows() const;  // elements() / columns
  uint64_t row_bytes() const;
  std::span<const std::byte> row(uint64_t i) const;
};

struct NamedTensor {
  std::string name;
  TensorView view;
};

}  // namespace skein
