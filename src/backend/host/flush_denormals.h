// FlushDenormals: while one lives, its thread rounds to nearest and treats subnormal floats as
// zero, going in and coming out. Ops hold one for as long as they compute, on every thread that
// does.
//
// The barriers keep loads and stores on their side of the switch; what lies between a load and a
// store is arithmetic, so that stays too.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace skein {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    set(kMaskedNearest | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() {
    set(before_);
  }
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    set(uint64_t{1} << 24);
  }
  ~FlushDenormals() {
    set(before_);
  }
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kMaskedNearest = 0x1f80, kFlushToZero = 0x8000,
                            kDenormalsAreZero = 0x40;
  static void set(uint32_t csr) {
    asm volatile("ldmxcsr %0" : : "m"(csr) : "memory");
  }
  uint32_t before_;
#elif defined(__aarch64__)
  static void set(uint64_t fpcr) {
    asm volatile("msr fpcr, %0" : : "r"(fpcr) : "memory");
  }
  uint64_t before_;
#endif
};

}  // namespace skein
