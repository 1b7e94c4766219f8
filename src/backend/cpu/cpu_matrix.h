// A matrix as the CPU backend keeps it: packed for products of its definition, or the file's own
// bytes with a way to turn rows into floats.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/packed_part.h"
#include "backend/cpu/weight_arena.h"
#include "backend/cpu/workers.h"
#include "backend/weight_parts.h"

namespace skein::cpu {

class CpuMatrix final : public Matrix {
 public:
  // One that reads the views themselves.
  CpuMatrix(const WeightParts& parts, const KernelTable& kernels);
  // One that is packed, into memory of the arena, which must outlive it, some megabytes of the
  // views at a time.
  static Result<std::unique_ptr<CpuMatrix>> pack(const WeightParts& parts, Precision precision,
                                                 const KernelTable& kernels,
                                                 const LinearKernels& linear, WeightArena& arena,
                                                 Workers& workers, const Consumed& consumed);

  // Empty unless it is packed.
  std::span<const PackedPart> packed() const { return packed_; }

  // The rest is for matrices that are not.
  // The length of a row in a panel: the inputs, up to a multiple of 16.
  size_t panel_stride() const { return (inputs() + 15) / 16 * 16; }
  // Rows [first, first + rows) into a panel; zeros past the inputs.
  void fill_panel(size_t first, size_t rows, float* panel) const;
  // One row of inputs() floats.
  void dequantize_row(size_t row, float* out) const;

 private:
  CpuMatrix(size_t outputs, size_t inputs, uint64_t bytes, std::vector<PackedPart> packed)
      : Matrix(outputs, inputs, bytes, /*reads_views=*/false), packed_(std::move(packed)) {}

  // Rows of a part without a kernel go through the reference.
  struct ViewRows {
    size_t first, end;  // of the whole matrix
    const std::byte* bytes;
    size_t row_bytes;
    Dequantize dequantize;  // nullptr: the reference
    const WeightView* view;
  };

  std::vector<PackedPart> packed_;
  std::vector<WeightView> views_;
  std::vector<ViewRows> rows_;
};

}  // namespace skein::cpu
