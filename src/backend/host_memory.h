// Memory of backends that compute where the process does.
#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace skein {

// As Backend::allocate asks: zeroed, lazily taken, aligned to 64 bytes, large ones to 2 MiB and in
// huge pages where the system has them. kResourceExhausted with the size when the address space
// cannot be had.
Result<Buffer> allocate_host(size_t bytes);

}  // namespace skein
