#include "tensor/quant/affine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/dequantize.h"

namespace skein {
namespace {

Status check_format(AffineFormat format) {
  if (format.bits != 4 && format.bits != 8) {
    return unimplemented("{} bits; 4 and 8 are read", format.bits);
  }
  if (format.group != 32 && format.group != 64 && format.group != 128) {
    return unimplemented("groups of {}; 32, 64 and 128 are read", format.group);
  }
  return ok_status();
}

bool is_float(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

}  // namespace

Result<AffineView> AffineView::of(const TensorView& packed, const TensorView& scales,
                                  const TensorView& biases, AffineFormat format) {
  SKEIN_TRY(check_format(format));
  if (packed.type != ElementType::kU32 || packed.shape.rank() == 0) {
    return invalid_argument("packed values are {} {}, not rows of U32", info(packed.type).name,
                            packed.shape.to_string());
  }
  // In words of 32 / bits elements a group is a whole number of words, so nothing here can
  // overflow.
  const uint64_t group_words = format.group * format.bits / 32;
  if (packed.shape.columns() % group_words != 0) {
    return invalid_argument("rows of {} words are not a whole number of groups of {}",
                            packed.shape.columns(), group_words);
  }
  std::array<uint64_t, kMaxDims> dims{};
  std::copy(packed.shape.dims().begin(), packed.shape.dims().end(), dims.begin());
  uint64_t& columns = dims[packed.shape.rank() - 1];
  columns /= group_words;
  const std::span used(dims.data(), packed.shape.rank());
  SKEIN_ASSIGN(const Shape groups, Shape::of(used));
  for (const TensorView* side : {&scales, &biases}) {
    if (!is_float(side->type) || side->shape != groups) {
      return invalid_argument("{} are {} {}, not floats {}", side == &scales ? "scales" : "biases",
                              info(side->type).name, side->shape.to_string(), groups.to_string());
    }
  }
  AffineView view;
  columns *= format.group;
  SKEIN_ASSIGN(view.shape_, Shape::of(used));
  SKEIN_TRY(view.shape_.checked_elements().status());
  view.packed_ = packed;
  view.scales_ = scales;
  view.biases_ = biases;
  view.format_ = format;
  return view;
}

void AffineView::dequantize_row(uint64_t row, std::span<float> out) const {
  const uint64_t columns = shape_.columns();
  SKEIN_CHECK(out.size() == columns, "room for {} of {} elements", out.size(), columns);
  const std::span<const std::byte> words = packed_.row(row);
  const uint32_t per_word = 32 / format_.bits;
  const uint32_t mask = (uint32_t{1} << format_.bits) - 1;
  float scale = 0, bias = 0;
  for (uint64_t i = 0; i < columns; ++i) {
    if (i % format_.group == 0) {
      const uint64_t group = i / format_.group;
      scale = element(scales_, row * scales_.shape.columns() + group);
      bias = element(biases_, row * biases_.shape.columns() + group);
    }
    uint32_t word = 0;
    std::memcpy(&word, words.data() + i / per_word * 4, 4);
    const uint32_t q = (word >> (i % per_word * format_.bits)) & mask;
    out[i] = scale * static_cast<float>(q) + bias;
  }
}

}  // namespace skein
