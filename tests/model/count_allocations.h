// Replaces operator new of the test binary by one that counts.
#pragma once

#include <cstdint>

namespace skein::testing {

// Allocations that the calling thread has made.
uint64_t allocations();

}  // namespace skein::testing
