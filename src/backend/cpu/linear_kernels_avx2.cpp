#include "backend/cpu/dot_avx2.h"
#include "backend/cpu/linear_kernels.inl"

namespace skein::cpu {

constexpr LinearKernels kAvx2Linear = make_linear_kernels<DotAvx2>();

}  // namespace skein::cpu
