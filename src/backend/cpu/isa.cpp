#include "backend/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <iterator>
#include <string>

namespace skein {
namespace {

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512", "amx"};

// The features that an ISA needs beyond the one before it.
struct Need {
  CpuIsa isa;
  bool CpuFeatures::*feature;
  std::string_view name;
};

constexpr Need kNeeds[] = {
    {CpuIsa::kAvx2, &CpuFeatures::avx2, "AVX2"},
    {CpuIsa::kAvx2, &CpuFeatures::fma, "FMA"},
    {CpuIsa::kAvx2, &CpuFeatures::f16c, "F16C"},
    {CpuIsa::kAvx2, &CpuFeatures::os_ymm, "an operating system that saves YMM registers"},
    {CpuIsa::kAvx512, &CpuFeatures::avx512f, "AVX512F"},
    {CpuIsa::kAvx512, &CpuFeatures::avx512bw, "AVX512BW"},
    {CpuIsa::kAvx512, &CpuFeatures::avx512vl, "AVX512VL"},
    {CpuIsa::kAvx512, &CpuFeatures::avx512dq, "AVX512DQ"},
    {CpuIsa::kAvx512, &CpuFeatures::os_zmm, "an operating system that saves ZMM registers"},
    {CpuIsa::kAmx, &CpuFeatures::avx512_vnni, "AVX512_VNNI"},
    {CpuIsa::kAmx, &CpuFeatures::amx_tile, "AMX-TILE"},
    {CpuIsa::kAmx, &CpuFeatures::amx_int8, "AMX-INT8"},
    {CpuIsa::kAmx, &CpuFeatures::amx_bf16, "AMX-BF16"},
    {CpuIsa::kAmx, &CpuFeatures::os_tiles, "an operating system that saves AMX tiles"},
};

// Everything that `isa` needs and the machine lacks, separated by commas.
std::string missing(CpuIsa isa, const CpuFeatures& features) {
  std::string names;
  for (const Need& need : kNeeds) {
    if (need.isa > isa || features.*need.feature) continue;
    if (!names.empty()) names += ", ";
    names += need.name;
  }
  return names;
}

#if defined(__x86_64__)
// The state components that the operating system saves.
uint64_t saved_state() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Of AMD's family 19h these alone have AVX-512.
bool is_zen4() {
  constexpr uint32_t kFamily = 0x19;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return false;
  if (b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  return (a >> 8 & 0xf) + (a >> 20 & 0xff) == kFamily;
}

// Asks for tiles, for all threads of the process; without it the first use of one is fatal.
bool request_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

std::string_view isa_name(CpuIsa isa) {
  return kNames[static_cast<size_t>(isa)];
}

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;  // XCR0 with what they build on
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  features.fma = (c & bit_FMA) != 0;
  features.f16c = (c & bit_F16C) != 0;
  if ((c & bit_OSXSAVE) != 0) {
    const uint64_t saved = saved_state();
    features.os_ymm = (saved & kYmm) == kYmm;
    features.os_zmm = (saved & kZmm) == kZmm;
    features.os_tiles = (saved & kTiles) == kTiles;
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  features.avx2 = (b & bit_AVX2) != 0;
  features.avx512f = (b & bit_AVX512F) != 0;
  features.avx512bw = (b & bit_AVX512BW) != 0;
  features.avx512vl = (b & bit_AVX512VL) != 0;
  features.avx512dq = (b & bit_AVX512DQ) != 0;
  features.avx512_vnni = (c & bit_AVX512VNNI) != 0;
  features.avx512_in_halves = features.avx512f && is_zen4();
  features.amx_bf16 = (d >> 22 & 1) != 0;
  features.amx_tile = (d >> 24 & 1) != 0;
  features.amx_int8 = (d >> 25 & 1) != 0;
  features.os_tiles = features.os_tiles && features.amx_tile && request_tiles();
#endif
  return features;
}

Result<CpuIsa> choose_isa(std::optional<std::string_view> requested, const CpuFeatures& features) {
  if (!requested) {
    auto best = CpuIsa::kScalar;
    for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
      if (missing(isa, features).empty()) best = isa;
    }
    return best;
  }
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] != *requested) continue;
    const auto isa = static_cast<CpuIsa>(i);
    const std::string lacks = missing(isa, features);
    if (lacks.empty()) return isa;
    return unimplemented("this machine cannot do {}: it lacks {}", *requested, lacks);
  }
  return invalid_argument("'{}' is no instruction set; there are scalar, avx2, avx512 and amx",
                          *requested);
}

Result<CpuIsa> choose_isa(std::optional<std::string_view> requested) {
  return choose_isa(requested, detect_cpu_features());
}

}  // namespace skein
