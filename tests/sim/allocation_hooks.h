// Replaces operator new of the test binary so that a chosen allocation of the calling thread fails,
// and counts allocations.
#pragma once

#include <cstdint>

#include "sim/workload.h"

namespace skein::sim {

AllocationHooks allocation_hooks();
// Allocations that the calling thread has made.
uint64_t allocations();

}  // namespace skein::sim
