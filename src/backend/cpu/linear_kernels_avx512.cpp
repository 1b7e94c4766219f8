// gcc 12 takes the _mm512_undefined_ps() of its own headers for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "backend/cpu/dot_avx512.h"
#include "backend/cpu/linear_kernels.inl"

namespace skein::cpu {

constexpr LinearKernels kAvx512Linear = make_linear_kernels<DotAvx512>();

}  // namespace skein::cpu
