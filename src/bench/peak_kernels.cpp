#include "bench/peak_kernels.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace skein::bench {
namespace {

// Independent chains: more than the latency of an instruction times how many start a cycle. Loops
// over them are unrolled, or they would live in memory.
constexpr size_t kChains = 16;
// An iteration repeats its chains so often that the moves which the compiler puts at its end do not
// count.
constexpr size_t kRepeats = 4;

// Something that depends on every bit of a register, so that none of the work is dead.
uint64_t sum_of_words(const void* bits, size_t bytes) {
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes; at += sizeof sum) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bits) + at, sizeof word);
    sum += word;
  }
  return sum;
}

uint64_t read_plain(const std::byte* memory, uint64_t bytes) {
  uint64_t sums[8] = {};
  for (uint64_t at = 0; at < bytes; at += sizeof sums) {
    uint64_t words[8];
    std::memcpy(words, memory + at, sizeof words);
    for (size_t i = 0; i < 8; ++i) sums[i] += words[i];
  }
  for (size_t i = 1; i < 8; ++i) sums[0] += sums[i];
  return sums[0];
}

uint64_t multiply_plain(uint64_t iterations) {
  float chains[kChains];
  for (size_t i = 0; i < kChains; ++i) chains[i] = static_cast<float>(i);
  float factor = 0.5F;
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (float& chain : chains) chain = chain * factor + 1;
    asm volatile("" : "+m"(factor));  // a new one every time, for all the compiler knows
  }
  float sum = 0;
  for (const float chain : chains) sum += chain;
  return static_cast<uint64_t>(sum);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* memory, uint64_t bytes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (uint64_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(memory + at + 32 * i);
      sums[i] = _mm256_add_epi64(sums[i], _mm256_loadu_si256(from));
    }
  }
  auto total = sums[0];
  for (size_t i = 1; i < 8; ++i) total = _mm256_add_epi64(total, sums[i]);
  return sum_of_words(&total, sizeof total);
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* memory, uint64_t bytes) {
  __m512i sums[8];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (uint64_t at = 0; at < bytes; at += 512) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(memory + at + 64 * i));
    }
  }
  auto total = sums[0];
  for (size_t i = 1; i < 8; ++i) total = _mm512_add_epi64(total, sums[i]);
  return sum_of_words(&total, sizeof total);
}

__attribute__((target("avx2,fma"))) uint64_t multiply_avx2(uint64_t iterations) {
  __m256 chains[kChains / 2];  // as many as there are registers beside the factors
  for (__m256& chain : chains) chain = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1), b = _mm256_set1_ps(1e-9F);
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 16
      for (__m256& chain : chains) chain = _mm256_fmadd_ps(a, b, chain);
    }
    asm volatile("" : "+x"(a), "+x"(b));
  }
  auto total = chains[0];
  for (size_t i = 1; i < kChains / 2; ++i) total = _mm256_add_ps(total, chains[i]);
  return sum_of_words(&total, sizeof total);
}

__attribute__((target("avx512f"))) uint64_t multiply_avx512(uint64_t iterations) {
  __m512 chains[kChains];
  for (__m512& chain : chains) chain = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1), b = _mm512_set1_ps(1e-9F);
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 16
      for (__m512& chain : chains) chain = _mm512_fmadd_ps(a, b, chain);
    }
    asm volatile("" : "+v"(a), "+v"(b));
  }
  auto total = chains[0];
  for (size_t i = 1; i < kChains; ++i) total = _mm512_add_ps(total, chains[i]);
  return sum_of_words(&total, sizeof total);
}

__attribute__((target("avx512f,avx512vnni"))) uint64_t multiply_vnni(uint64_t iterations) {
  __m512i chains[kChains];
  for (__m512i& chain : chains) chain = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi32(0x01010101), b = _mm512_set1_epi32(0x02020202);
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 16
      for (__m512i& chain : chains) chain = _mm512_dpbusd_epi32(chain, a, b);
    }
    asm volatile("" : "+v"(a), "+v"(b));
  }
  auto total = chains[0];
  for (size_t i = 1; i < kChains; ++i) total = _mm512_add_epi32(total, chains[i]);
  return sum_of_words(&total, sizeof total);
}

__attribute__((target("avx512f,avx512bf16"))) uint64_t multiply_bf16(uint64_t iterations) {
  __m512 chains[kChains];
  for (__m512& chain : chains) chain = _mm512_setzero_ps();
  __m512i a = _mm512_set1_epi32(0x3f803f80), b = _mm512_set1_epi32(0x30003000);
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 16
      for (__m512& chain : chains) {
        chain =
            _mm512_dpbf16_ps(chain, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
      }
    }
    asm volatile("" : "+v"(a), "+v"(b));
  }
  auto total = chains[0];
  for (size_t i = 1; i < kChains; ++i) total = _mm512_add_ps(total, chains[i]);
  return sum_of_words(&total, sizeof total);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Four accumulator tiles, two of each side: the shape that keeps the unit busy.
template <bool kBf16>
__attribute__((target("amx-tile,amx-int8,amx-bf16"))) uint64_t multiply_tiles(uint64_t iterations) {
  TileConfig config;
  for (size_t tile = 0; tile < 8; ++tile) config.bytes_per_row[tile] = 64, config.rows[tile] = 16;
  asm volatile("" : "+m"(config));  // gcc before 12.4 takes the stores above for dead
  _tile_loadconfig(&config);
  for (uint64_t n = 0; n < iterations; n += kChains) {  // a tile does what 16 registers do
    if constexpr (kBf16) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    } else {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_release();
  return config.palette;
}

// AMX in the CPU (leaf 7: tiles 24, int8 25, bf16 22 of edx), and the kernel's leave to use it.
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAll = 1U << 24 | 1U << 25 | 1U << 22;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return (d & kAll) == kAll && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#endif

using ReadAll = uint64_t (*)(const std::byte*, uint64_t);

ReadAll best_reader() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_plain;
}

struct KernelList {
  std::array<PeakKernel, 6> kernels;
  size_t count = 0;
  void add(const PeakKernel& kernel) { kernels[count++] = kernel; }
};

KernelList find_kernels() {
  KernelList list;
#if defined(__x86_64__)
  if (has_tiles()) {
    list.add({"int8 (AMX)", 2ULL * 4 * 16 * 16 * 64 / kChains, multiply_tiles<false>});
    list.add({"bf16 (AMX)", 2ULL * 4 * 16 * 16 * 32 / kChains, multiply_tiles<true>});
  }
  if (__builtin_cpu_supports("avx512vnni")) {
    list.add({"int8 (AVX-512 VNNI)", 2ULL * 64 * kChains * kRepeats, multiply_vnni});
  }
  if (__builtin_cpu_supports("avx512bf16")) {
    list.add({"bf16 (AVX-512)", 2ULL * 32 * kChains * kRepeats, multiply_bf16});
  }
  if (__builtin_cpu_supports("avx512f")) {
    list.add({"float32 (AVX-512)", 2ULL * 16 * kChains * kRepeats, multiply_avx512});
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    list.add({"float32 (AVX2)", 2ULL * 8 * kChains / 2 * kRepeats, multiply_avx2});
  }
#endif
  if (list.count == 0) list.add({"float32", 2ULL * kChains, multiply_plain});
  return list;
}

}  // namespace

uint64_t read_all(const std::byte* memory, uint64_t bytes) {
  static const ReadAll reader = best_reader();
  return reader(memory, bytes);
}

std::span<const PeakKernel> peak_kernels() {
  static const KernelList list = find_kernels();
  return {list.kernels.data(), list.count};
}

}  // namespace skein::bench
