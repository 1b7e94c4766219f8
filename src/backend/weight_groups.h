// Quantized rows as integers and scales, 32 columns at a time: what definition G32 (arithmetic.h)
// multiplies with, the same for the reference and for every packed layout.
//
// A weight is scale * value(code) + minimum. Scales and minimums are those of the file, but where
// the file has them as a product of two factors (the K-quants, IQ4_XS) or in float32 (affine groups
// of some files) they are rounded to float16, which changes them by 2^-11 of themselves at most.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/arithmetic.h"
#include "backend/backend.h"

namespace skein {

// How codes and scales of a format are to be read.
struct GroupFormat {
  uint32_t bits = 4;              // of a code: 2, 4, 5, 6 or 8
  int32_t offset = 0;             // value = code - offset, unless there is a table
  const int8_t* table = nullptr;  // [16] values of 4-bit codes
  bool halves = false;            // scales of columns 0 to 15 and 16 to 31; else one for all 32
  bool has_minimum = false;       // where not, offset or table makes values signed
  bool bfloat16_scales = false;   // else float16

  int32_t value(uint8_t code) const { return table != nullptr ? table[code] : code - offset; }
  float scale(uint16_t bits) const;
};

struct WeightGroup {
  std::array<uint8_t, arithmetic::kGroup> code{};
  // These are of the halves, as bits of float16 or bfloat16; the second ones only where
  // format.halves.
  std::array<uint16_t, 2> scale{}, minimum{};
  // The same as the file means them, before they are rounded.
  std::array<float, 2> exact_scale{}, exact_minimum{};
};

// nullopt for types that are not quantized.
std::optional<GroupFormat> group_format(const WeightView& view);

// Row `row` of a view that has a group format; `out` has columns / 32 groups.
void read_groups(const WeightView& view, uint64_t row, std::span<WeightGroup> out);

}  // namespace skein
