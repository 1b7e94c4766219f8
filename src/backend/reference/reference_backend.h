// The truth: every op of backend.h as scalar loops that read like its definition. Single-threaded
// and slow.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace skein {

// In a device's profile it computes that device's bits.
std::unique_ptr<Backend> make_reference_backend(Precision precision,
                                                Profile profile = Profile::kHost);

}  // namespace skein
