#include "backend/cpu/packed_part.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace skein::cpu {
namespace {

constexpr size_t kGroup = arithmetic::kGroup;
constexpr size_t kLine = 64;

Codes codes_of(const GroupFormat& format) {
  if (format.table != nullptr) return Codes::kTable;
  switch (format.bits) {
    case 2:
      return Codes::kTwos;
    case 4:
      return Codes::kNibbles;
    case 5:
      return Codes::kFives;
    case 6:
      return Codes::kSixes;
    default:
      return Codes::kBytes;
  }
}

LinearKernels::G32 kernel_for(const G32Layout& layout, const LinearKernels& kernels) {
  switch (layout.codes) {
    case Codes::kTwos:
      return kernels.twos_halves_minimum;
    case Codes::kTable:
      return kernels.table;
    case Codes::kFives:
      return layout.has_minimum ? kernels.fives_minimum : kernels.fives;
    case Codes::kSixes:
      return kernels.sixes_halves;
    case Codes::kBytes:
      return layout.has_minimum ? kernels.bytes_minimum : kernels.bytes;
    case Codes::kNibbles:
      break;
  }
  if (layout.halves) return kernels.nibbles_halves;
  return layout.has_minimum ? kernels.nibbles_minimum : kernels.nibbles;
}

// Four codes at a time.
uint32_t codes_at(const WeightGroup& group, size_t column) {
  uint32_t four;
  std::memcpy(&four, group.code.data() + column, sizeof four);
  return four;
}

constexpr uint32_t repeated(uint8_t byte) {
  return byte * 0x01010101U;
}

void put_four(uint8_t* block, size_t j, size_t row, uint32_t four) {
  std::memcpy(block + (kBlockRows * j + row) * 4, &four, sizeof four);
}

// The codes of one output into a block: of each the two bits from `shift` on, which are its last.
void put_twos(const WeightGroup& group, size_t row, uint8_t* block, size_t shift) {
  for (size_t j = 0; j < 2; ++j) {
    uint32_t all = 0;
    for (size_t i = 0; i < 4; ++i) {
      all |= (codes_at(group, 8 * i + 4 * j) >> shift & repeated(3)) << (2 * i);
    }
    put_four(block, j, row, all);
  }
}

// The first four bits of each.
void put_nibbles(const WeightGroup& group, size_t row, uint8_t* block) {
  constexpr uint32_t kNibbles = repeated(0xf);
  for (size_t j = 0; j < 4; ++j) {
    put_four(block, j, row,
             (codes_at(group, 4 * j) & kNibbles) | (codes_at(group, 16 + 4 * j) & kNibbles) << 4);
  }
}

void put_fifths(const WeightGroup& group, size_t row, uint8_t* block) {
  uint32_t all = 0;
  for (size_t i = 0; i < 8; ++i) all |= (codes_at(group, 4 * i) >> 4 & repeated(1)) << i;
  put_four(block, 0, row, all);
}

void put_bytes(const WeightGroup& group, size_t row, uint8_t* block) {
  for (size_t j = 0; j < 8; ++j) put_four(block, j, row, codes_at(group, 4 * j));
}

void put_codes(Codes codes, const WeightGroup& group, size_t row, uint8_t* block) {
  switch (codes) {
    case Codes::kTwos:
      return put_twos(group, row, block, 0);
    case Codes::kNibbles:
    case Codes::kTable:
      return put_nibbles(group, row, block);
    case Codes::kFives:
      put_nibbles(group, row, block);
      return put_fifths(group, row, block + kCodes4Bytes);
    case Codes::kSixes:
      put_nibbles(group, row, block);
      return put_twos(group, row, block + kCodes4Bytes, 4);
    case Codes::kBytes:
      return put_bytes(group, row, block);
  }
}

}  // namespace

PackedPart::PackedPart(const WeightView& view, ProductType product_type, size_t first_output,
                       const LinearKernels& kernels)
    : product_type_(product_type),
      outputs_(rows_of(view)),
      first_output_(first_output),
      groups_((columns_of(view) + kGroup - 1) / kGroup),
      panel_rows_(kernels.panel_rows),
      bf16_(kernels.bf16),
      add_outlier_(kernels.add_outlier),
      add_residuals_(kernels.add_residuals) {
  if (product_type == ProductType::kBF16) {
    block_stride_ = groups_ * kBf16BlockBytes;
    return;
  }
  const GroupFormat format = *group_format(view);
  layout_ = {codes_of(format), format.halves, format.has_minimum};
  bfloat16_scales_ = format.bfloat16_scales;
  for (size_t i = 0; i < 16 && format.table != nullptr; ++i) {
    table_[i] = static_cast<uint8_t>(format.table[i] + 128);
  }
  g32_ = kernel_for(layout_, kernels);
  const size_t bytes = groups_ * (layout_.code_bytes() + layout_.scale_bytes());
  block_stride_ = (bytes + kLine - 1) / kLine * kLine;
}

void PackedPart::pack(const WeightView& view, size_t block) const {
  uint8_t* const to = memory_ + block * block_stride_;
  if (product_type_ == ProductType::kG32) {
    pack_g32(view, block, to);
  } else {
    pack_bf16(view, block, to);
  }
}

void PackedPart::pack_g32(const WeightView& view, size_t block, uint8_t* to) const {
  std::vector<WeightGroup> groups(groups_);
  uint8_t* const scales = to + groups_ * layout_.code_bytes();
  const size_t dots = layout_.halves ? 2 : 1;
  const size_t rows = std::min(kBlockRows, outputs_ - block * kBlockRows);
  for (size_t row = 0; row < rows; ++row) {
    read_groups(view, block * kBlockRows + row, groups);
    for (size_t g = 0; g < groups_; ++g) {
      uint8_t* const codes = to + g * layout_.code_bytes();
      put_codes(layout_.codes, groups[g], row, codes);
      uint8_t* const own = scales + g * layout_.scale_bytes() + row * sizeof(uint16_t);
      for (size_t d = 0; d < dots; ++d) {
        std::memcpy(own + d * kScalesBytes, &groups[g].scale[d], sizeof(uint16_t));
        if (!layout_.has_minimum) continue;
        std::memcpy(own + (dots + d) * kScalesBytes, &groups[g].minimum[d], sizeof(uint16_t));
      }
    }
  }
}

void PackedPart::pack_bf16(const WeightView& view, size_t block, uint8_t* to) const {
  const size_t columns = columns_of(view);
  std::vector<float> values((columns + 1) / 2 * 2);
  const size_t rows = std::min(kBlockRows, outputs_ - block * kBlockRows);
  for (size_t row = 0; row < rows; ++row) {
    const size_t output = block * kBlockRows + row;
    if (dequantize_ == nullptr) {
      dequantize_row(view, output, std::span(values).first(columns));
    } else {
      const std::span<const std::byte> bytes = std::get<TensorView>(view).row(output);
      dequantize_(reinterpret_cast<const uint8_t*>(bytes.data()), columns, values.data());
    }
    for (size_t k = 0; k < columns; k += 2) {
      const uint32_t first = arithmetic::round_to_bf16(values[k]);
      const uint32_t second = arithmetic::round_to_bf16(values[k + 1]);
      put_four(to, k / 2, row, first | second << 16);
    }
  }
}

template <class Record>
PackedMultiply<Record> PackedPart::complete(PackedMultiply<Record> args, size_t first, size_t count,
                                            const float* bias) const {
  const size_t begin = first * kBlockRows;
  args.weights = memory_ + first * block_stride_;
  args.block_stride = block_stride_;
  args.outputs = std::min(count * kBlockRows, outputs_ - begin);
  args.groups = groups_;
  args.first_output = first_output_ + begin;
  args.bias = bias == nullptr ? nullptr : bias + args.first_output;
  return args;
}

void PackedPart::multiply(PackedMultiply<QuantizedRecord> args, size_t first, size_t count,
                          const float* bias) const {
  g32_({complete(args, first, count, bias), table_, bfloat16_scales_, panel_rows_});
}

void PackedPart::multiply(PackedMultiply<Bf16Record> args, size_t first, size_t count,
                          const float* bias) const {
  bf16_(complete(args, first, count, bias));
}

// Where linear_kernels.h has it.
G32Column PackedPart::column(size_t column) const {
  const size_t group = column / kGroup, k = column % kGroup;
  const size_t codes = group * layout_.code_bytes();
  const auto byte = static_cast<int32_t>(8 * (k % 4));
  const auto twos_from = [&](size_t at) {
    return CodeBits{at + kLine * (k / 4 % 2), byte + 2 * static_cast<int32_t>(k / 8), 3};
  };
  G32Column found{};
  found.low = {codes + kLine * (k % 16 / 4), byte + (k < 16 ? 0 : 4), 0xf};
  found.offset = 8;
  switch (layout_.codes) {
    case Codes::kTwos:
      found.low = twos_from(codes);
      break;
    case Codes::kNibbles:
    case Codes::kTable:
      break;
    case Codes::kFives:
      found.high = {codes + kCodes4Bytes, byte + static_cast<int32_t>(k / 4), 1};
      found.offset = 16;
      break;
    case Codes::kSixes:
      found.high = twos_from(codes + kCodes4Bytes);
      found.offset = 32;
      break;
    case Codes::kBytes:
      found.low = {codes + kLine * (k / 4), byte, 0xff};
      found.offset = 128;
      break;
  }
  if (layout_.has_minimum) found.offset = 0;
  const size_t half = layout_.halves ? k / (kGroup / 2) : 0;
  found.scale =
      groups_ * layout_.code_bytes() + group * layout_.scale_bytes() + half * kScalesBytes;
  found.minimum = found.scale + (layout_.halves ? 2 : 1) * kScalesBytes;
  found.has_minimum = layout_.has_minimum;
  return found;
}

void PackedPart::add_outliers(std::span<const Outlier> outliers, size_t first, size_t count,
                              float* out) const {
  const size_t begin = first * kBlockRows;
  for (const Outlier& outlier : outliers) {
    add_outlier_({memory_ + first * block_stride_, block_stride_,
                  std::min(count * kBlockRows, outputs_ - begin), column(outlier.column),
                  layout_.codes == Codes::kTable ? table_ : nullptr, bfloat16_scales_, outlier.x,
                  out + first_output_ + begin});
  }
}

void PackedPart::add_residuals(std::span<const Bf16Residual> residuals, size_t first, size_t count,
                               float* out) const {
  const size_t begin = first * kBlockRows;
  add_residuals_({memory_ + first * block_stride_, block_stride_,
                  std::min(count * kBlockRows, outputs_ - begin), residuals.data(),
                  residuals.size(), out + first_output_ + begin});
}

}  // namespace skein::cpu
