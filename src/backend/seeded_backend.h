// Backends for weights that are random and in no file, to measure a shape with.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/registry.h"

namespace skein {

// As make_backend(). One with memory of its own (Backend::device) fills matrices and tables there,
// from the seed, and never looks at the bytes of their views: there need be none.
Result<std::unique_ptr<Backend>> make_seeded_backend(const BackendOptions& options,
                                                     ComputePool& pool, uint64_t seed);

}  // namespace skein
