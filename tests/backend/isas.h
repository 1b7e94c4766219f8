// The instruction sets that this machine can run.
#pragma once

#include <vector>

#include "backend/cpu/isa.h"

namespace skein {

inline std::vector<CpuIsa> available_isas() {
  std::vector<CpuIsa> isas;
  for (const char* name : {"scalar", "avx2", "avx512", "amx"}) {
    const Result<CpuIsa> isa = choose_isa(name);
    if (isa.ok()) isas.push_back(*isa);
  }
  return isas;
}

}  // namespace skein
