// The CPU backend: the reference's bits, on all threads of a pool and with one instruction set.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/compute_pool.h"

namespace skein {

// `pool` must outlive the backend; `isa` is one that choose_isa() gives on this machine.
std::unique_ptr<Backend> make_cpu_backend(ComputePool& pool, CpuIsa isa, Precision precision);

}  // namespace skein
