// PackedPart: one part of a matrix in a layout of linear_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/weight_groups.h"
#include "backend/weight_parts.h"

namespace skein::cpu {

class PackedPart {
 public:
  // A part of product type kG32 or kBF16, at row `first_output` of its matrix; nothing is packed
  // yet.
  PackedPart(const WeightView& view, ProductType product_type, size_t first_output,
             const LinearKernels& kernels);

  ProductType product_type() const { return product_type_; }
  size_t outputs() const { return outputs_; }
  size_t first_output() const { return first_output_; }  // in the matrix
  size_t row_blocks() const { return (outputs_ + kBlockRows - 1) / kBlockRows; }
  size_t bytes() const { return row_blocks() * block_stride_; }
  size_t block_stride() const { return block_stride_; }

  // Sets where it lies: bytes() zeroed bytes that outlive it, aligned to 64.
  void place(uint8_t* memory) { memory_ = memory; }
  // How product type kBF16 reads a row of the view; nullptr: as the reference does.
  void read_by(Dequantize dequantize) { dequantize_ = dequantize; }
  // Row block `block`. Different ones may be packed at the same time; subnormals must be flushed.
  void pack(const WeightView& view, size_t block) const;

  // Multiplies `count` row blocks from `first` on with the rows of `args` (x, rows, out); `bias` is
  // the matrix's or nullptr.
  void multiply(PackedMultiply<QuantizedRecord> args, size_t first, size_t count,
                const float* bias) const;
  void multiply(PackedMultiply<Bf16Record> args, size_t first, size_t count,
                const float* bias) const;
  // Adds the outliers of a row to what the same row blocks have made of it; `out` is the whole row.
  void add_outliers(std::span<const Outlier> outliers, size_t first, size_t count,
                    float* out) const;
  // Adds the residuals of a row to what the same row blocks have made of it; `out` is the whole
  // row.
  void add_residuals(std::span<const Bf16Residual> residuals, size_t first, size_t count,
                     float* out) const;

 private:
  void pack_g32(const WeightView& view, size_t block, uint8_t* to) const;
  void pack_bf16(const WeightView& view, size_t block, uint8_t* to) const;
  G32Column column(size_t column) const;
  template <class Record>
  PackedMultiply<Record> complete(PackedMultiply<Record> args, size_t first, size_t count,
                                  const float* bias) const;

  ProductType product_type_;
  size_t outputs_, first_output_;
  size_t groups_;  // of 32 inputs
  size_t block_stride_ = 0;
  G32Layout layout_;
  bool bfloat16_scales_ = false;
  alignas(16) uint8_t table_[16] = {};
  LinearKernels::G32 g32_ = nullptr;
  Dequantize dequantize_ = nullptr;
  size_t panel_rows_;
  void (*bf16_)(const Bf16Multiply& args);
  void (*add_outlier_)(const OutlierMultiply& args);
  void (*add_residuals_)(const ResidualMultiply& args);
  uint8_t* memory_ = nullptr;
};

}  // namespace skein::cpu
