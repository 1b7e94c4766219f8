// A matrix as the CPU backend keeps it: the file's own bytes, and a way to turn rows into floats.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/weight_parts.h"

namespace skein::cpu {

class CpuMatrix final : public Matrix {
 public:
  CpuMatrix(WeightParts parts, const KernelTable& kernels);

  // Of a row in a panel: the inputs, up to a multiple of 16.
  size_t panel_stride() const { return (inputs() + 15) / 16 * 16; }

  // Rows [first, first + rows) into a panel; zeros past the inputs.
  void fill_panel(size_t first, size_t rows, float* panel) const;
  // One row of inputs() floats.
  void dequantize_row(size_t row, float* out) const;

 private:
  // Rows of a part without a kernel go through the reference.
  struct Rows {
    size_t first, end;  // of the whole matrix
    const std::byte* bytes;
    size_t row_bytes;
    Dequantize dequantize;  // nullptr: the reference
  };

  WeightParts parts_;
  std::vector<Rows> rows_;
};

}  // namespace skein::cpu
