#include "backend/cpu/kernels_for.h"

#include "base/ids.h"

namespace skein::cpu {

static_assert(kKernelBlockTokens == kBlockTokens);

#if defined(__x86_64__)
namespace {

const KernelTable& amx_kernels() {
  static const KernelTable table = [] {
    KernelTable made = kAvx512Kernels;
    made.attend_span_bf16 = attend_span_amx;
    return made;
  }();
  return table;
}

// Where loads and shifts cost little, unpacking weights for every four rows anew costs less than
// keeping them unpacked does, up to some dozens of rows.
const LinearKernels& linear_kernels_in_halves() {
  static const LinearKernels table = [] {
    LinearKernels made = kAvx512Linear;
    made.panel_rows = 64;
    return made;
  }();
  return table;
}

}  // namespace
#endif

const KernelTable& kernels_for(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return kScalarKernels;
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return kAvx2Kernels;
    case CpuIsa::kAvx512:
      return kAvx512Kernels;
    case CpuIsa::kAmx:
      return amx_kernels();
#else
    default:
      break;
#endif
  }
  SKEIN_CHECK(false, "this build has no kernels for {}", isa_name(isa));
  return kScalarKernels;
}

const LinearKernels& linear_kernels_for(CpuIsa isa, const CpuFeatures& features) {
  switch (isa) {
    case CpuIsa::kScalar:
      return kScalarLinear;
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return kAvx2Linear;
    case CpuIsa::kAvx512:
      if (!features.avx512_vnni) return kAvx2Linear;
      return features.avx512_in_halves ? linear_kernels_in_halves() : kAvx512Linear;
    case CpuIsa::kAmx:
      return kAmxLinear;
#else
    default:
      break;
#endif
  }
  SKEIN_CHECK(false, "this build has no kernels for {}", isa_name(isa));
  return kScalarLinear;
}

}  // namespace skein::cpu
