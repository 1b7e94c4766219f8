// Which instructions the CPU backend may use. Every choice gives the same bits; only the time
// differs.
//
//   scalar  any machine
//   avx2    AVX2, FMA, F16C
//   avx512  AVX-512 F, BW, VL, DQ
//   amx     avx512 with VNNI and AMX tiles, int8 and bf16
//
// Each needs the operating system to save its registers as well, which for tiles Linux does on
// request.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace skein {

enum class CpuIsa : uint8_t { kScalar, kAvx2, kAvx512, kAmx };

std::string_view isa_name(CpuIsa isa);  // "avx512"

// Features of a machine; all false where it is not an x86.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false;
  bool avx512_vnni = false;  // makes avx512 faster and is needed for amx alone
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  // Registers that the operating system saves.
  bool os_ymm = false, os_zmm = false, os_tiles = false;
  // Products of 512 bits take two turns of units of 256, as AMD's Zen 4 has it: loads, shifts and
  // masks then cost little beside them.
  bool avx512_in_halves = false;
};

// The features of the machine that this runs on. Where it has AMX tiles this requests them for the
// process.
CpuFeatures detect_cpu_features();

// The one that was asked for by name, or the best there is. kInvalidArgument for a name that is
// none (lists them), kUnimplemented for one that the machine lacks (says what is missing).
Result<CpuIsa> choose_isa(std::optional<std::string_view> requested, const CpuFeatures& features);
Result<CpuIsa> choose_isa(std::optional<std::string_view> requested);

}  // namespace skein
