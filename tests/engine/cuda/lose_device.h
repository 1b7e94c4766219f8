// How a real device is lost on purpose.
#pragma once

#include <cstdint>

namespace skein::testing {

enum class Fault : uint8_t { kWriteNowhere, kTrap };

// Runs a kernel that faults, on the process's current device, and waits for it. The whole context
// is lost then. The driver's words for what happened.
const char* lose_device(Fault fault);

}  // namespace skein::testing
