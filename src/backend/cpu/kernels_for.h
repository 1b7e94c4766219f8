// The tables of an instruction set.
#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/linear_kernels.h"

namespace skein::cpu {

// `isa` must be one that choose_isa() gives on this machine. AMX is for products and for
// attention over bfloat16; its other kernels are those of AVX-512.
const KernelTable& kernels_for(CpuIsa isa);

// The same for products. Where a CPU has AVX-512 but no VNNI these are AVX2's.
const LinearKernels& linear_kernels_for(CpuIsa isa, const CpuFeatures& features);

}  // namespace skein::cpu
