#include "backend/cpu/kernels.inl"
#include "backend/cpu/vec_scalar.h"

namespace skein::cpu {

constexpr KernelTable kScalarKernels = make_kernels<VecScalar>();

}  // namespace skein::cpu
