// Element types to float32: the reference that every faster path is held against, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/tensor.h"

namespace skein {

// False for types that are storage only (integers, F64).
bool can_dequantize(ElementType type);

// `elements` values from the blocks at `bytes`; a whole number of blocks, of a type that
// can_dequantize.
void dequantize(ElementType type, std::span<const std::byte> bytes, std::span<float> out);

// One value of a tensor of F32, F16 or BF16.
float element(const TensorView& tensor, uint64_t index);

}  // namespace skein
