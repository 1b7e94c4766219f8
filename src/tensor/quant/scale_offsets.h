// Where blocks have scales: what random blocks must set for their numbers to be of a sane size.
#pragma once

#include <cstddef>
#include <vector>

#include "tensor/element_type.h"

namespace skein {

// In bytes from the start of a block of the type, its float16 scales and minimums.
inline std::vector<size_t> scale_offsets(ElementType type) {
  switch (type) {
    case ElementType::kQ4_0:
    case ElementType::kQ5_0:
    case ElementType::kQ8_0:
    case ElementType::kIQ4_NL:
    case ElementType::kIQ4_XS:
      return {0};
    case ElementType::kQ4_1:
    case ElementType::kQ5_1:
    case ElementType::kQ4_K:
    case ElementType::kQ5_K:
      return {0, 2};
    case ElementType::kQ2_K:
      return {80, 82};
    case ElementType::kQ3_K:
      return {108};
    case ElementType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

}  // namespace skein
