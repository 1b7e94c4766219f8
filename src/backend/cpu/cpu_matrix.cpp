#include "backend/cpu/cpu_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace skein::cpu {
namespace {

void copy_f32(const uint8_t* from, size_t elements, float* out) {
  std::memcpy(out, from, elements * sizeof(float));
}

// nullptr where there is no kernel for the type.
Dequantize kernel_for(ElementType type, const Dequantizers& kernels) {
  switch (type) {
    case ElementType::kF32:
      return copy_f32;
    case ElementType::kF16:
      return kernels.f16;
    case ElementType::kBF16:
      return kernels.bf16;
    case ElementType::kQ4_0:
      return kernels.q4_0;
    case ElementType::kQ4_1:
      return kernels.q4_1;
    case ElementType::kQ5_0:
      return kernels.q5_0;
    case ElementType::kQ5_1:
      return kernels.q5_1;
    case ElementType::kQ8_0:
      return kernels.q8_0;
    case ElementType::kQ4_K:
      return kernels.q4_k;
    case ElementType::kQ5_K:
      return kernels.q5_k;
    case ElementType::kQ6_K:
      return kernels.q6_k;
    default:
      return nullptr;
  }
}

void pack_part(const PackedPart& part, const WeightView& view, Workers& workers,
               const Consumed& consumed) {
  constexpr uint64_t kSlice = uint64_t{8} << 20;
  const size_t slice = part.row_blocks() * kSlice / std::max(bytes_of(view), kSlice) + 1;
  for (size_t first = 0; first < part.row_blocks(); first += slice) {
    const size_t count = std::min(slice, part.row_blocks() - first);
    workers.run(count, count * kBlockRows * columns_of(view),
                [&](size_t, size_t block) { part.pack(view, first + block); });
    const size_t row = first * kBlockRows;
    consume_rows(view, row, std::min(count * kBlockRows, part.outputs() - row), consumed);
  }
}

}  // namespace

CpuMatrix::CpuMatrix(const WeightParts& parts, const KernelTable& kernels)
    : Matrix(parts.outputs(), parts.inputs(), parts.bytes(), /*reads_views=*/true),
      views_(parts.parts().begin(), parts.parts().end()) {
  for (size_t i = 0; i < views_.size(); ++i) {
    ViewRows rows{parts.first_row(i), parts.first_row(i + 1), nullptr, 0, nullptr, &views_[i]};
    if (const auto* tensor = std::get_if<TensorView>(&views_[i])) {
      rows.bytes = tensor->bytes.data();
      rows.row_bytes = tensor->row_bytes();
      rows.dequantize = kernel_for(tensor->type, kernels.dequantize);
    }
    rows_.push_back(rows);
  }
}

Result<std::unique_ptr<CpuMatrix>> CpuMatrix::pack(const WeightParts& parts, Precision precision,
                                                   const KernelTable& kernels,
                                                   const LinearKernels& linear, WeightArena& arena,
                                                   Workers& workers, const Consumed& consumed) {
  std::vector<PackedPart> packed;
  uint64_t bytes = 0;
  for (size_t i = 0; i < parts.parts().size(); ++i) {
    const WeightView& view = parts.parts()[i];
    PackedPart part(view, product_type_of(precision, view), parts.first_row(i), linear);
    if (const auto* tensor = std::get_if<TensorView>(&view)) {
      part.read_by(kernel_for(tensor->type, kernels.dequantize));
    }
    SKEIN_ASSIGN(uint8_t* const memory, arena.take(part.bytes()));
    part.place(memory);
    pack_part(part, view, workers, consumed);
    bytes += part.bytes();
    packed.push_back(part);
  }
  return std::unique_ptr<CpuMatrix>(
      new CpuMatrix(parts.outputs(), parts.inputs(), bytes, std::move(packed)));
}

void CpuMatrix::dequantize_row(size_t row, float* out) const {
  const auto part = std::find_if(rows_.begin(), rows_.end(),
                                 [&](const ViewRows& rows) { return row < rows.end; });
  SKEIN_CHECK(part != rows_.end(), "row {} of {}", row, outputs());
  const size_t local = row - part->first;
  if (part->dequantize == nullptr) {
    skein::dequantize_row(*part->view, local, {out, inputs()});
    return;
  }
  const std::byte* const bytes = part->bytes + local * part->row_bytes;
  part->dequantize(reinterpret_cast<const uint8_t*>(bytes), inputs(), out);
}

void CpuMatrix::fill_panel(size_t first, size_t rows, float* panel) const {
  const size_t stride = panel_stride();
  for (size_t i = 0; i < rows; ++i, panel += stride) {
    dequantize_row(first + i, panel);
    std::fill(panel + inputs(), panel + stride, 0.0F);
  }
}

}  // namespace skein::cpu
