// The experts of gpt-oss folders, repacked into matrices [N, K] as all others are. Values are
// moved, never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace skein {

// Rows of gate and up alternate in these files; a matrix has all of gate, then all of up.
enum class RowOrder : uint8_t { kPlain, kAlternating };

// The row of the file that becomes row `row` of `rows`.
uint64_t source_row(RowOrder order, uint64_t row, uint64_t rows);

// Expert `expert` of F32, F16 or BF16 [experts, K, N], as [N, K] of the same type.
std::vector<std::byte> transposed_expert(const TensorView& all, uint64_t expert, RowOrder order);

// Expert `expert` of U8 blocks [experts, N, K / 32, 16] and scales [experts, N, K / 32], as MXFP4
// [N, K]. A byte of the file holds elements 2i and 2i + 1; one of GGUF's holds i and i + 16.
std::vector<std::byte> mxfp4_expert(const TensorView& blocks, const TensorView& scales,
                                    uint64_t expert, RowOrder order);

}  // namespace skein
