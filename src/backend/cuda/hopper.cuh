// The instructions of Hopper that C++ has no words for: barriers in shared memory, bulk copies that
// arrive at them, and wgmma, the products of a warpgroup of 128 threads.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace skein::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A barrier's phase ends when `arrivals` have arrived, and all bytes that were announced.
__device__ inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Barriers that were initialized are seen by bulk copies from here on.
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase of that parity has ended; of a new barrier the one of parity 1 has.
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether what is copied will be read again soon, by another block of threads.
#define SKEIN_EVICT(when)                                                           \
  __device__ inline uint64_t evict_##when() {                                       \
    uint64_t policy;                                                                \
    asm("createpolicy.fractional.L2::evict_" #when ".b64 %0, 1.0;" : "=l"(policy)); \
    return policy;                                                                  \
  }
SKEIN_EVICT(first)
SKEIN_EVICT(last)
SKEIN_EVICT(normal)
#undef SKEIN_EVICT
__device__ inline void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// A kernel that was launched with may_overlap begins while the one before it in the stream still
// runs: it has to wait before it touches what that one writes or reads, in every block of threads,
// or a kernel after it might overtake both.
__device__ inline void wait_for_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ inline void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;");
}

// Threads of a warpgroup that needs few registers leave the others to those that need many: all of
// them have to call it. A kernel begins with the same number for each.
template <int kRegisters>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The blocks of a cluster, all of which run at once and reach each other's shared memory. Whoever
// has waited sees what the others wrote before they arrived, and that they have begun.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Into what lies at the same place in the shared memory of the block of that number.
__device__ inline void put_in_cluster(uint32_t* own, uint32_t block, uint32_t value) {
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.u32 [there], %2;\n}" ::"r"(shared_address(own)),
      "r"(block), "r"(value)
      : "memory");
}

// Four matrices of 8 rows of 16 bytes; `address` is that of row lane % 8 of matrix lane / 8.
__device__ inline void load_matrices(uint32_t address, uint32_t* out) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_shared(uint32_t address, uint32_t (&out)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
__device__ inline void store_shared(uint32_t address, const uint32_t (&x)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}

// Two numbers as float16, the first one in the low half.
__device__ inline uint32_t f16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline uint16_t f16_of(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// Rows of 64 numbers as in f16_tiles.h, from a multiple of 1024 bytes; 16 inputs further is + 2.
__device__ inline uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = uint64_t{1} << 62;
  return ((address & 0x3ffffU) >> 4) | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128;
}

__device__ inline void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kGroups of the groups that were committed are under way.
template <int kGroups>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// sums[64 rows of a][kTokens rows of b] += a * b^T over 16 inputs. Of the sums thread t of the
// warpgroup has, at j: row t / 32 * 16 + t % 32 / 4 + j / 2 % 2 * 8, token j / 4 * 8 + t % 4 * 2 +
// j % 2.
template <int kTokens>
__device__ void add_products(float (&sums)[kTokens / 2], uint64_t a, uint64_t b);

// The same where the threads hold a: each warp 16 rows, the pairs of numbers in the order of rows
// t % 32 / 4 and + 8, inputs t % 4 * 2, then + 8.
template <int kTokens>
__device__ void add_products_of_fragments(float (&sums)[kTokens / 2], const uint32_t (&a)[4],
                                          uint64_t b);

#define SKEIN_TEN(t)                                                                               \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9"
#define SKEIN_SUMS8(i)                                                                       \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SKEIN_SUMS32(i) SKEIN_SUMS8(i), SKEIN_SUMS8(i + 8), SKEIN_SUMS8(i + 16), SKEIN_SUMS8(i + 24)
#define SKEIN_WGMMA(tokens, names, a_b, ...)                                                      \
  template <>                                                                                     \
  __device__ inline void add_products<tokens>(float(&sums)[tokens / 2], uint64_t a, uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.f16.f16 {" names "}, " a_b  \
                 ", 1, 1, 1, 0, 0;"                                                               \
                 : __VA_ARGS__                                                                    \
                 : "l"(a), "l"(b));                                                               \
  }
#define SKEIN_WGMMA_OF_FRAGMENTS(tokens, names, a_b, ...)                                        \
  template <>                                                                                    \
  __device__ inline void add_products_of_fragments<tokens>(float(&sums)[tokens / 2],             \
                                                           const uint32_t(&a)[4], uint64_t b) {  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.f16.f16 {" names "}, " a_b \
                 ", 1, 1, 1, 0;"                                                                 \
                 : __VA_ARGS__                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                          \
  }
SKEIN_WGMMA(8, "%0, %1, %2, %3", "%4, %5", "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]),
            "+f"(sums[3]))
SKEIN_WGMMA(16, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9", SKEIN_SUMS8(0))
SKEIN_WGMMA(32, SKEIN_TEN() ", %10, %11, %12, %13, %14, %15", "%16, %17", SKEIN_SUMS8(0),
            SKEIN_SUMS8(8))
SKEIN_WGMMA(64, SKEIN_TEN() ", " SKEIN_TEN(1) ", " SKEIN_TEN(2) ", %30, %31", "%32, %33",
            SKEIN_SUMS32(0))
SKEIN_WGMMA(128,
            SKEIN_TEN() ", " SKEIN_TEN(1) ", " SKEIN_TEN(2) ", " SKEIN_TEN(3) ", " SKEIN_TEN(
                4) ", " SKEIN_TEN(5) ", %60, %61, %62, %63",
            "%64, %65", SKEIN_SUMS32(0), SKEIN_SUMS32(32))
SKEIN_WGMMA(256,
            SKEIN_TEN() ", " SKEIN_TEN(1) ", " SKEIN_TEN(2) ", " SKEIN_TEN(3) ", " SKEIN_TEN(
                4) ", " SKEIN_TEN(5) ", " SKEIN_TEN(6) ", " SKEIN_TEN(7) ", " SKEIN_TEN(8) ", "
                SKEIN_TEN(9) ", " SKEIN_TEN(10) ", " SKEIN_TEN(11)
                ", %120, %121, %122, %123, %124, %125, %126, %127",
            "%128, %129", SKEIN_SUMS32(0), SKEIN_SUMS32(32), SKEIN_SUMS32(64), SKEIN_SUMS32(96))
SKEIN_WGMMA_OF_FRAGMENTS(8, "%0, %1, %2, %3", "{%4, %5, %6, %7}, %8", "+f"(sums[0]), "+f"(sums[1]),
                         "+f"(sums[2]), "+f"(sums[3]))
SKEIN_WGMMA_OF_FRAGMENTS(32, SKEIN_TEN() ", %10, %11, %12, %13, %14, %15",
                         "{%16, %17, %18, %19}, %20", SKEIN_SUMS8(0), SKEIN_SUMS8(8))
SKEIN_WGMMA_OF_FRAGMENTS(64, SKEIN_TEN() ", " SKEIN_TEN(1) ", " SKEIN_TEN(2) ", %30, %31",
                         "{%32, %33, %34, %35}, %36", SKEIN_SUMS32(0))
#undef SKEIN_WGMMA_OF_FRAGMENTS
#undef SKEIN_WGMMA
#undef SKEIN_SUMS32
#undef SKEIN_SUMS8
#undef SKEIN_TEN

}  // namespace skein::cuda
