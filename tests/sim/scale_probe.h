// Catches operations that have become O(pool): what a step costs must not grow with memory.
#pragma once

#include <string>

namespace skein::sim {

// Empty, or what is wrong.
std::string probe_scale();

}  // namespace skein::sim
