// How many threads are worth computing with.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

// Cores that this process may run on, each counted once however many threads of its own it has, or
// what the control groups above it grant in whole CPUs, whichever is less; 1 at least. `root` is
// where /proc and /sys are looked for; tests give a folder of their own.
uint32_t usable_cpus(const std::string& root = "");

}  // namespace skein
