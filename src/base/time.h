// Time is an integer number of microseconds on a monotonic axis. The control plane only ever
// receives it as an argument; a Clock is held by the engine and the apps alone.
#pragma once

#include <cstdint>

namespace skein {

using TimeUs = int64_t;

inline constexpr TimeUs kUsPerMs = 1'000;
inline constexpr TimeUs kUsPerSecond = 1'000'000;
inline constexpr TimeUs kNever = INT64_MAX;

}  // namespace skein
