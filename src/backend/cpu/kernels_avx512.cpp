// gcc 12 takes the _mm512_undefined_ps() of its own headers for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "backend/cpu/kernels.inl"
#include "backend/cpu/vec_avx512.h"

namespace skein::cpu {

constexpr KernelTable kAvx512Kernels = make_kernels<VecAvx512>();

}  // namespace skein::cpu
