#include "backend/cpu/kernels.inl"
#include "backend/cpu/vec_avx2.h"

namespace skein::cpu {

constexpr KernelTable kAvx2Kernels = make_kernels<VecAvx2>();

}  // namespace skein::cpu
