// The instruction sets that this machine can run, and those that tests can run on it. Asked once: a
// virtual machine leaves itself for every CPUID, and the cases of hundreds of tests are made of
// these lists.
#pragma once

#include <vector>

#include "backend/amx_emulator.h"
#include "backend/cpu/isa.h"

namespace skein {

inline const std::vector<CpuIsa>& available_isas() {
  static const std::vector<CpuIsa> known = [] {
    std::vector<CpuIsa> isas;
    for (const char* name : {"scalar", "avx2", "avx512", "amx"}) {
      const Result<CpuIsa> isa = choose_isa(name);
      if (isa.ok()) isas.push_back(*isa);
    }
    return isas;
  }();
  return known;
}

// Whether a backend for `isa` that is made here needs the emulator, as the kernels of AMX do on a
// machine that has all they need but the tiles.
inline bool is_emulated(CpuIsa isa) {
  static const bool emulated =
      !choose_isa("amx").ok() && choose_isa("avx512").ok() && detect_cpu_features().avx512_vnni;
  return isa == CpuIsa::kAmx && emulated;
}

// available_isas() and AMX, emulated if need be.
inline std::vector<CpuIsa> testable_isas() {
  std::vector<CpuIsa> isas = available_isas();
#if defined(__x86_64__)
  if (is_emulated(CpuIsa::kAmx)) {
    emulate_amx();
    isas.push_back(CpuIsa::kAmx);
  }
#endif
  return isas;
}

}  // namespace skein
