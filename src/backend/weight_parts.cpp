#include "backend/weight_parts.h"

#include <algorithm>

#include "backend/weight_groups.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

const Shape& shape_of(const WeightView& view) {
  const auto* tensor = std::get_if<TensorView>(&view);
  return tensor != nullptr ? tensor->shape : std::get<AffineView>(view).shape();
}

Status check_type(const WeightView& view) {
  const auto* tensor = std::get_if<TensorView>(&view);
  if (tensor != nullptr && !can_dequantize(tensor->type)) {
    return unimplemented("a matrix of {}: the type has no float values", info(tensor->type).name);
  }
  return ok_status();
}

}  // namespace

ProductType product_type_of(Precision precision, const WeightView& view, Profile profile) {
  if (profile == Profile::kHopper && precision != Precision::kF32) return ProductType::kF16;
  switch (precision) {
    case Precision::kF32:
      return ProductType::kF32;
    case Precision::kDefault:
      return group_format(view) ? ProductType::kG32 : ProductType::kBF16;
    case Precision::kHigh:
      break;
  }
  return ProductType::kBF16;
}

size_t columns_of(const WeightView& view) {
  return shape_of(view).columns();
}

size_t rows_of(const WeightView& view) {
  const Shape& shape = shape_of(view);
  size_t rows = 1;
  for (size_t i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

uint64_t bytes_of(const WeightView& view) {
  if (const auto* tensor = std::get_if<TensorView>(&view)) {
    return tensor->rows() * tensor->row_bytes();
  }
  const auto& affine = std::get<AffineView>(view);
  return affine.packed().bytes.size() + affine.scales().bytes.size() + affine.biases().bytes.size();
}

void dequantize_row(const WeightView& view, size_t row, std::span<float> out) {
  if (const auto* tensor = std::get_if<TensorView>(&view)) {
    dequantize(tensor->type, tensor->row(row), out);
  } else {
    std::get<AffineView>(view).dequantize_row(row, out);
  }
}

void consume_rows(const WeightView& view, size_t first, size_t count, const Consumed& consumed) {
  const auto rows = [&](const TensorView& tensor) {
    if (tensor.bytes.empty()) return;  // a shape alone
    const size_t row_bytes = tensor.row_bytes();
    consumed(tensor.bytes.subspan(first * row_bytes, count * row_bytes));
  };
  if (const auto* tensor = std::get_if<TensorView>(&view)) return rows(*tensor);
  const auto& affine = std::get<AffineView>(view);
  rows(affine.packed());
  rows(affine.scales());
  rows(affine.biases());
}

Result<WeightParts> WeightParts::of(std::span<const WeightView> parts) {
  if (parts.empty()) return invalid_argument("a matrix of no parts");
  WeightParts whole;
  whole.inputs_ = shape_of(parts[0]).columns();
  whole.first_rows_.push_back(0);
  for (const WeightView& part : parts) {
    SKEIN_TRY(check_type(part));
    const Shape& shape = shape_of(part);
    if (shape.rank() == 0 || shape.columns() == 0 || shape.columns() != whole.inputs_) {
      return invalid_argument("a matrix of parts {} and {}", shape_of(parts[0]).to_string(),
                              shape.to_string());
    }
    whole.parts_.push_back(part);
    whole.first_rows_.push_back(whole.first_rows_.back() + rows_of(part));
    whole.bytes_ += bytes_of(part);
  }
  return whole;
}

size_t WeightParts::part_of(size_t row) const {
  SKEIN_CHECK(row < outputs(), "row {} of {}", row, outputs());
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  return static_cast<size_t>(after - first_rows_.begin()) - 1;
}

void WeightParts::dequantize_row(size_t row, std::span<float> out) const {
  const size_t part = part_of(row);
  skein::dequantize_row(parts_[part], row - first_rows_[part], out);
}

}  // namespace skein
