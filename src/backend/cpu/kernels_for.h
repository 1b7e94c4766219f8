// The table of an instruction set.
#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_table.h"

namespace skein::cpu {

// `isa` must be one that choose_isa() gives on this machine. AMX has no kernels of its own yet and
// takes those of AVX-512.
const KernelTable& kernels_for(CpuIsa isa);

}  // namespace skein::cpu
