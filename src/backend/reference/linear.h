// Products of rows with one row of a matrix, as arithmetic.h defines them.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/weight_parts.h"

namespace skein::reference {

// out[i] = x[i] * row `row` of a part + *bias, if there is one. `out` has x.rows elements.
void multiply_row(ProductType product_type, const WeightView& part, size_t row, Rows x,
                  const float* bias, std::span<float> out);

// The same where it is a row of a matrix of `outputs` rows whose products are F16.
void multiply_row_f16(const WeightView& part, size_t row, size_t outputs, Rows x, const float* bias,
                      std::span<float> out);

}  // namespace skein::reference
