#include "tensor/tensor.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace skein {
namespace {

constexpr uint64_t kMaxCount = INT64_MAX;  // so that signed and unsigned readers agree

bool multiply(uint64_t a, uint64_t b, uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product) && product <= kMaxCount;
}

}  // namespace

Shape::Shape(std::initializer_list<uint64_t> dims) : rank_(dims.size()) {
  SKEIN_CHECK(rank_ <= kMaxDims, "{} dimensions, at most {}", rank_, kMaxDims);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

Result<Shape> Shape::of(std::span<const uint64_t> dims) {
  if (dims.size() > kMaxDims) {
    return out_of_range("has {} dimensions, at most {} are read", dims.size(), kMaxDims);
  }
  Shape shape;
  shape.rank_ = dims.size();
  std::copy(dims.begin(), dims.end(), shape.dims_.begin());
  return shape;
}

Result<uint64_t> Shape::checked_elements() const {
  uint64_t count = 1;
  for (const uint64_t dim : dims()) {
    if (!multiply(count, dim, count)) {
      return out_of_range("shape {} has more than 2^63 - 1 elements", to_string());
    }
  }
  return count;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims(), ", "));
}

Result<uint64_t> checked_byte_size(ElementType type, const Shape& shape) {
  const ElementTypeInfo& element = info(type);
  SKEIN_ASSIGN(const uint64_t elements, shape.checked_elements());
  if (shape.columns() % element.block_elements != 0) {
    return invalid_argument("rows of {} elements are not a whole number of {} blocks of {}",
                            shape.columns(), element.name, element.block_elements);
  }
  uint64_t bytes = 0;
  if (!multiply(elements / element.block_elements, element.block_bytes, bytes)) {
    return out_of_range("shape {} in {} takes more than 2^63 - 1 bytes", shape.to_string(),
                        element.name);
  }
  return bytes;
}

uint64_t TensorView::elements() const {
  uint64_t count = 1;
  for (const uint64_t dim : shape.dims()) count *= dim;
  return count;
}

uint64_t TensorView::rows() const {
  return shape.columns() == 0 ? 0 : elements() / shape.columns();
}

uint64_t TensorView::row_bytes() const {
  return shape.columns() / info(type).block_elements * info(type).block_bytes;
}

std::span<const std::byte> TensorView::row(uint64_t i) const {
  SKEIN_CHECK(i < rows(), "row {} of {}", i, rows());
  return bytes.subspan(i * row_bytes(), row_bytes());
}

}  // namespace skein
