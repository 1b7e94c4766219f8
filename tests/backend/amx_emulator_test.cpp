// The emulator against plain loops, through instructions as the assembler encodes them. Where the
// machine has AMX it is the machine that is compared.
#include "backend/amx_emulator.h"

#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <thread>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/cpu/isa.h"
#include "backend/host/flush_denormals.h"
#include "backend/same_bits.h"
#include "base/rng.h"

namespace skein {
namespace {

struct Shape {
  size_t rows, bytes;  // of a row
};

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  void set(size_t tile, Shape shape) {
    rows[tile] = static_cast<uint8_t>(shape.rows);
    bytes[tile] = static_cast<uint16_t>(shape.bytes);
  }
  bool operator==(const Configuration&) const = default;
};
static_assert(sizeof(Configuration) == 64);

void load_configuration(const Configuration& from) {
  asm volatile("ldtilecfg %0" : : "m"(from));
}
Configuration stored_configuration() {
  Configuration to;
  asm volatile("sttilecfg %0" : "=m"(to));
  return to;
}
void release() {
  asm volatile("tilerelease");
}

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t count, Rng& rng) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.below(256));
  return bytes;
}

size_t between(size_t least, size_t most, Rng& rng) {
  return least + rng.below(most - least + 1);
}

class AmxEmulator : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    native_ = choose_isa("amx").ok();
    if (!native_ && choose_isa("avx2").ok()) emulate_amx();
  }
  void SetUp() override {
    if (!native_ && !choose_isa("avx2").ok()) GTEST_SKIP() << "the emulator needs AVX2";
  }
  void TearDown() override {
    if (!IsSkipped()) release();
  }
  // What the emulator says; a CPU just ends the process.
  static const char* said(const char* text) { return native_ ? "" : text; }

  static inline bool native_ = false;
  Rng rng_{5};
};

TEST_F(AmxEmulator, KeepsTheConfigurationUntilItIsReleased) {
  static Configuration fixed;  // its address is relative to RIP
  fixed.set(3, {9, 20});
  fixed.set(7, {16, 64});
  load_configuration(fixed);
  EXPECT_EQ(stored_configuration(), fixed);
  std::array<Configuration, 3> several;
  several[2].set(0, {1, 4});
  asm volatile("mov %0, %%r12\n\tmov $16, %%r9\n\tldtilecfg 64(%%r12,%%r9,4)"
               :
               : "r"(several.data())
               : "r12", "r9", "memory");
  EXPECT_EQ(stored_configuration(), several[2]);
  release();
  const Configuration none = stored_configuration();
  EXPECT_EQ(none.palette, 0);
  EXPECT_EQ(none.rows[0], 0);
}

TEST_F(AmxEmulator, LoadsAndStoresRowsAStrideApart) {
  for (size_t round = 0; round < 200; ++round) {
    const Shape shape{between(1, 16, rng_), between(1, 64, rng_)};
    Configuration configuration;
    configuration.set(6, shape);
    load_configuration(configuration);
    const size_t from_stride = between(64, 200, rng_), to_stride = between(64, 200, rng_);
    const Bytes from = random_bytes(16 * from_stride, rng_);
    Bytes to = random_bytes(16 * to_stride, rng_), want = to;
    if (round % 2 == 0) {
      asm volatile("tileloadd (%0,%1,1), %%tmm6" : : "r"(from.data()), "r"(from_stride) : "memory");
    } else {
      asm volatile("tileloaddt1 (%0,%1,1), %%tmm6"
                   :
                   : "r"(from.data()), "r"(from_stride)
                   : "memory");
    }
    asm volatile("tilestored %%tmm6, (%0,%1,1)" : : "r"(to.data()), "r"(to_stride) : "memory");
    for (size_t i = 0; i < shape.rows; ++i) {
      std::memcpy(&want[i * to_stride], &from[i * from_stride], shape.bytes);
    }
    ASSERT_EQ(to, want) << shape.rows << " x " << shape.bytes;
  }
}

TEST_F(AmxEmulator, ReadsEveryFormOfAnAddress) {
  Configuration configuration;
  configuration.set(1, {4, 32});
  load_configuration(configuration);
  const Bytes from = random_bytes(4096, rng_);
  Bytes to(256);
  const auto check = [&](ptrdiff_t first, ptrdiff_t stride, const char* form) {
    asm volatile("tilestored %%tmm1, (%0,%1,1)" : : "r"(to.data()), "r"(64L) : "memory");
    for (ptrdiff_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::memcmp(&to[64 * i], &from[first + i * stride], 32), 0)
          << form << ", row " << i;
    }
  };
  const uint8_t* const at = from.data();
#define LOAD(address, base, index)                                                          \
  asm volatile("mov %0, %%" base "\n\tmov %1, %%" index "\n\ttileloadd " address ", %%tmm1" \
               :                                                                            \
               : "r"(at + 1024), "r"(40L)                                                   \
               : base, index, "memory")
  LOAD("(%%rax,%%rdi,2)", "rax", "rdi");
  check(1024, 80, "low registers");
  LOAD("-100(%%r13,%%r14,1)", "r13", "r14");
  check(924, 40, "r13 has a displacement of 8 bits");
  LOAD("(%%r12,%%r15,8)", "r12", "r15");
  check(1024, 320, "r12 and r15");
  LOAD("1000(%%rsi,%%r8,4)", "rsi", "r8");
  check(2024, 160, "a displacement of 32 bits");
  LOAD("(%%r9,%%r12,1)", "r9", "r12");
  check(1024, 40, "r12 as the index, which rsp cannot be");
  LOAD("7(%%rdx)", "rdx", "rcx");
  check(1031, 0, "no index: one row again and again");
  asm volatile("mov %0, %%r10\n\tmov %1, %%rbx\n\ttileloadd (%%rbx,%%r10,1), %%tmm1"
               :
               : "r"(-48L), "r"(at + 1024)
               : "r10", "rbx", "memory");
  check(1024, -48, "a stride below zero");
#undef LOAD
}

TEST_F(AmxEmulator, ZeroesATileAlone) {
  Configuration configuration;
  configuration.set(0, {2, 8});
  configuration.set(5, {2, 8});
  load_configuration(configuration);
  const Bytes from = random_bytes(16, rng_);
  Bytes first(16), second(16);
  asm volatile(
      "tileloadd (%0,%1,1), %%tmm0\n\ttileloadd (%0,%1,1), %%tmm5\n\t"
      "tilezero %%tmm5\n\t"
      "tilestored %%tmm0, (%2,%1,1)\n\ttilestored %%tmm5, (%3,%1,1)"
      :
      : "r"(from.data()), "r"(8L), "r"(first.data()), "r"(second.data())
      : "memory");
  EXPECT_EQ(first, from);
  EXPECT_EQ(second, Bytes(16));
}

// tmm<c> += tmm<a> * tmm<b>, for tiles in memory with rows of 64 bytes.
#define MULTIPLY(instruction, c, a, b)                                                           \
  [](uint8_t* to, const uint8_t* left, const uint8_t* right) {                                   \
    asm volatile("tileloadd (%0,%3,1), %%tmm" #c "\n\ttileloadd (%1,%3,1), %%tmm" #a             \
                 "\n\ttileloadd (%2,%3,1), %%tmm" #b "\n\t" instruction " %%tmm" #b ", %%tmm" #a \
                 ", %%tmm" #c "\n\ttilestored %%tmm" #c ", (%0,%3,1)"                            \
                 :                                                                               \
                 : "r"(to), "r"(left), "r"(right), "r"(64L)                                      \
                 : "memory");                                                                    \
  }
using MultiplyTiles = void (*)(uint8_t* to, const uint8_t* left, const uint8_t* right);

struct Places {
  size_t c, a, b;
};

// Random shapes for a product in these tiles: C [m][n], A [m][k], B [k][n] of 4 bytes.
struct Dimensions {
  size_t m, n, k;
};
Dimensions configure_product(Places at, Rng& rng) {
  const Dimensions d{between(1, 16, rng), between(1, 16, rng), between(1, 16, rng)};
  Configuration configuration;
  configuration.set(at.c, {d.m, 4 * d.n});
  configuration.set(at.a, {d.m, 4 * d.k});
  configuration.set(at.b, {d.k, 4 * d.n});
  load_configuration(configuration);
  return d;
}

template <class A, class B>
void check_bytes(MultiplyTiles multiply, Places at, Rng& rng) {
  for (size_t round = 0; round < 50; ++round) {
    const Dimensions d = configure_product(at, rng);
    const Bytes a = random_bytes(1024, rng), b = random_bytes(1024, rng);
    Bytes c = random_bytes(1024, rng), want = c;
    multiply(c.data(), a.data(), b.data());
    for (size_t m = 0; m < d.m; ++m) {
      for (size_t n = 0; n < d.n; ++n) {
        uint32_t sum = 0;
        std::memcpy(&sum, &want[64 * m + 4 * n], 4);
        for (size_t i = 0; i < 4 * d.k; ++i) {
          sum += static_cast<uint32_t>(int32_t{static_cast<A>(a[64 * m + i])} *
                                       static_cast<B>(b[64 * (i / 4) + 4 * n + i % 4]));
        }
        std::memcpy(&want[64 * m + 4 * n], &sum, 4);
      }
    }
    ASSERT_EQ(c, want) << d.m << " x " << d.n << " x " << d.k;
  }
}

TEST_F(AmxEmulator, MultipliesBytes) {
  check_bytes<int8_t, int8_t>(MULTIPLY("tdpbssd", 0, 1, 2), {0, 1, 2}, rng_);
  check_bytes<int8_t, uint8_t>(MULTIPLY("tdpbsud", 7, 3, 5), {7, 3, 5}, rng_);
  check_bytes<uint8_t, int8_t>(MULTIPLY("tdpbusd", 4, 6, 0), {4, 6, 0}, rng_);
  check_bytes<uint8_t, uint8_t>(MULTIPLY("tdpbuud", 2, 7, 1), {2, 7, 1}, rng_);
}

// A float of about 2^exponent, give or take a few.
float float_about(int exponent, Rng& rng) {
  const float mantissa = static_cast<float>(rng.below(2001)) / 1000.0F - 1.0F;
  return std::ldexp(mantissa, exponent + static_cast<int>(rng.below(8)));
}

// The definition of arithmetic.h, element by element.
float expected_sum(const Bytes& a, const Bytes& b, size_t m, size_t n, size_t depth, float sum) {
  const auto element = [](const Bytes& tile, size_t at) {
    uint16_t bits = 0;
    std::memcpy(&bits, &tile[at], 2);
    return arithmetic::float_of_bf16(bits);
  };
  float chains[2] = {0.0F, 0.0F};
  for (size_t k = 0; k < 2 * depth; ++k) {
    chains[k % 2] = std::fma(element(a, 64 * m + 2 * k),
                             element(b, 64 * (k / 2) + 4 * n + 2 * (k % 2)), chains[k % 2]);
  }
  return sum + (chains[0] + chains[1]);
}

TEST_F(AmxEmulator, MultipliesBfloat16AsArithmeticDefinesIt) {
  const MultiplyTiles multiply = MULTIPLY("tdpbf16ps", 6, 0, 3);
  for (size_t round = 0; round < 100; ++round) {
    const Dimensions d = configure_product({6, 0, 3}, rng_);
    // Ordinary products; subnormal ones; subnormal factors, which count as zero.
    constexpr int kExponents[][2] = {{-4, -4}, {-66, -66}, {-130, 20}};
    const auto [left, right] = kExponents[round % 3];
    Bytes a(1024), b(1024), c(1024);
    for (Bytes* tile : {&a, &b}) {
      for (size_t i = 0; i < 1024; i += 2) {
        const uint32_t bits =
            arithmetic::bits_of_float(float_about(tile == &a ? left : right, rng_));
        const auto half = static_cast<uint16_t>(bits >> 16);
        std::memcpy(tile->data() + i, &half, 2);
      }
    }
    for (size_t i = 0; i < 1024; i += 4) {
      const float x = float_about(left + right, rng_);
      std::memcpy(&c[i], &x, 4);
    }
    const Bytes before = c;
    multiply(c.data(), a.data(), b.data());
    const FlushDenormals flush;
    for (size_t m = 0; m < d.m; ++m) {
      for (size_t n = 0; n < d.n; ++n) {
        float got = 0, sum = 0;
        std::memcpy(&got, &c[64 * m + 4 * n], 4);
        std::memcpy(&sum, &before[64 * m + 4 * n], 4);
        const float want = expected_sum(a, b, m, n, d.k, sum);
        ASSERT_TRUE(same_bits(got, want)) << std::hexfloat << got << " for " << want;
      }
    }
  }
}

TEST_F(AmxEmulator, AThreadHasTilesOfItsOwn) {
  Configuration configuration;
  configuration.set(2, {3, 12});
  load_configuration(configuration);
  std::thread([] {
    EXPECT_EQ(stored_configuration().palette, 0);
    Configuration other;
    other.set(4, {1, 1});
    load_configuration(other);
    EXPECT_EQ(stored_configuration(), other);
  }).join();
  EXPECT_EQ(stored_configuration(), configuration);
}

using AmxEmulatorDeathTest = AmxEmulator;

TEST_F(AmxEmulatorDeathTest, RefusesConfigurationsThatAreNone) {
  const auto load = [](auto change) {
    Configuration configuration;
    configuration.set(0, {16, 64});
    change(configuration);
    load_configuration(configuration);
  };
  EXPECT_DEATH(load([](auto& c) { c.palette = 2; }), said("palette"));
  EXPECT_DEATH(load([](auto& c) { c.reserved[3] = 1; }), said("reserved"));
  EXPECT_DEATH(load([](auto& c) { c.set(8, {1, 4}); }), said("reserved"));
  EXPECT_DEATH(load([](auto& c) { c.set(1, {17, 4}); }), said("more than 16 rows"));
  EXPECT_DEATH(load([](auto& c) { c.set(1, {1, 68}); }), said("more than 64 bytes"));
  EXPECT_DEATH(load([](auto& c) { c.set(1, {4, 0}); }), said("but not both"));
}

TEST_F(AmxEmulatorDeathTest, RefusesTilesThatAreNotConfigured) {
  release();
  EXPECT_DEATH(asm volatile("tilezero %tmm0"), said("without a configuration"));
  Configuration configuration;
  configuration.set(1, {16, 64});
  load_configuration(configuration);
  EXPECT_DEATH(asm volatile("tilezero %tmm0"), said("leaves out"));
}

TEST_F(AmxEmulatorDeathTest, RefusesShapesThatDoNotFit) {
  const auto multiply = [](Shape c, Shape a, Shape b) {
    Configuration configuration;
    configuration.set(0, c);
    configuration.set(1, a);
    configuration.set(2, b);
    load_configuration(configuration);
    asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
  };
  multiply({3, 8}, {3, 20}, {5, 8});
  EXPECT_DEATH(multiply({4, 8}, {3, 20}, {5, 8}), said("C and A differ"));
  EXPECT_DEATH(multiply({3, 12}, {3, 20}, {5, 8}), said("C and B differ"));
  EXPECT_DEATH(multiply({3, 8}, {3, 16}, {5, 8}), said("columns of B's rows"));
  EXPECT_DEATH(multiply({3, 8}, {3, 22}, {5, 8}), said("part of an element"));
  multiply({4, 16}, {4, 16}, {4, 16});
  // tdpbssd tmm0, tmm0, tmm0, which assemblers refuse
  EXPECT_DEATH(asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x5e, 0xc0"), said("in two places"));
}

TEST_F(AmxEmulatorDeathTest, LeavesOtherInstructionsToTheDefaultAction) {
  EXPECT_EXIT(asm volatile("ud2"), ::testing::KilledBySignal(SIGILL), "");
}

TEST_F(AmxEmulator, CountsWhatItExecutes) {
  if (native_) GTEST_SKIP() << "this machine has AMX";
  const uint64_t before = emulated_amx_instructions();
  load_configuration(Configuration());
  release();
  EXPECT_EQ(emulated_amx_instructions() - before, 2U);
}

}  // namespace
}  // namespace skein
