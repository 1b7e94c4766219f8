// The vocabulary scans of every instruction set that this machine has.
#pragma once

#include <vector>

#include "backend/cpu/kernels_for.h"
#include "backend/vocabulary_scan.h"

namespace skein::testing {

inline std::vector<VocabularyScan> scans() {
  std::vector<VocabularyScan> all;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (choose_isa(isa_name(isa)).ok()) all.emplace_back(cpu::kernels_for(isa));
  }
  return all;
}

}  // namespace skein::testing
