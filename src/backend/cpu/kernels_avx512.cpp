#include "backend/cpu/kernels.inl"
#include "backend/cpu/vec_avx512.h"

namespace skein::cpu {

constexpr KernelTable kAvx512Kernels = make_kernels<VecAvx512>();

}  // namespace skein::cpu
