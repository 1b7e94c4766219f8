// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

// Bytes: the least of what the machine has available and of what every control group (version 2 or
// 1) above this process leaves: its limit less its use, where file cache does not count as use,
// since the kernel gives it back on demand. UINT64_MAX when nothing can be read. `root` is where
// /proc and /sys are looked for; tests give a folder of their own.
uint64_t available_memory(const std::string& root = "");

}  // namespace skein
