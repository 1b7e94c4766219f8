// Products of few rows with codes in strips (packed_tiles.h), and codes that become numbers before
// they are multiplied with many.
#pragma once

#include "backend/cuda/product_params.h"

namespace skein::cuda {

// Once for the current device.
cudaError_t set_up_strips();

// Whether multiply_strips takes them; products.cuh has the others.
bool fits_strips(const DeviceTiles& matrix, uint32_t rows, uint32_t processors);
void multiply_strips(const ProductParams& params, uint32_t processors, cudaStream_t stream);

// The same matrix of numbers, in `to`, which has room for F16Tiles::bytes() of them.
DeviceTiles widen(const DeviceTiles& matrix, std::byte* to, cudaStream_t stream);

}  // namespace skein::cuda
