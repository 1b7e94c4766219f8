#include "backend/cpu/dot_scalar.h"
#include "backend/cpu/linear_kernels.inl"

namespace skein::cpu {

constexpr LinearKernels kScalarLinear = make_linear_kernels<DotScalar>();

}  // namespace skein::cpu
