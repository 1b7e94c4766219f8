// The values that tests of arithmetic try beside the ordinary ones.
#pragma once

#include <limits>

namespace skein::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace skein::testing
