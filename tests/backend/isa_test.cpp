// Choosing an instruction set.
#include "backend/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/kernels_for.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CpuFeatures everything() {
  return {true, true, true, true, true, true, true, true, true, true, true, true, true, true};
}

TEST(ChooseIsa, TakesTheBestThereIs) {
  CpuFeatures features = everything();
  EXPECT_EQ(*choose_isa(std::nullopt, features), CpuIsa::kAmx);
  for (const auto need : {&CpuFeatures::os_tiles, &CpuFeatures::avx512_vnni}) {
    features = everything();
    features.*need = false;
    EXPECT_EQ(*choose_isa(std::nullopt, features), CpuIsa::kAvx512);
  }
  features.avx512vl = false;
  EXPECT_EQ(*choose_isa(std::nullopt, features), CpuIsa::kAvx2);
  features.f16c = false;
  EXPECT_EQ(*choose_isa(std::nullopt, features), CpuIsa::kScalar);
  EXPECT_EQ(*choose_isa(std::nullopt, CpuFeatures{}), CpuIsa::kScalar);
}

TEST(ChooseIsa, TakesWhatWasAskedFor) {
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    EXPECT_EQ(*choose_isa(isa_name(isa), everything()), isa);
  }
  EXPECT_EQ(*choose_isa("scalar", CpuFeatures{}), CpuIsa::kScalar);
}

TEST(ChooseIsa, SaysWhatTheMachineLacks) {
  CpuFeatures features = everything();
  features.avx512dq = features.os_zmm = false;
  const auto refused = choose_isa("avx512", features);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("avx512"));
  EXPECT_THAT(refused.message(), HasSubstr("AVX512DQ, an operating system that saves ZMM"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("AVX512BW")));
  EXPECT_THAT(choose_isa("avx2", CpuFeatures{}).message(), HasSubstr("AVX2, FMA, F16C"));
}

TEST(ChooseIsa, ListsTheNames) {
  const auto refused = choose_isa("sse9", everything());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("'sse9'"));
  EXPECT_THAT(refused.message(), HasSubstr("scalar, avx2, avx512 and amx"));
}

TEST(ChooseIsa, AgreesWithTheCompilerAboutThisMachine) {
#if defined(__x86_64__)
  const CpuFeatures features = detect_cpu_features();
  EXPECT_EQ(features.avx2 && features.os_ymm, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(features.fma && features.os_ymm, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(features.avx512f && features.os_zmm, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(features.avx512bw && features.os_zmm, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(features.avx512vl && features.os_zmm, __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(features.avx512_vnni && features.os_zmm, __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(features.avx512dq && features.os_zmm, __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(features.avx512_in_halves, features.avx512f && __builtin_cpu_is("amdfam19h") != 0);
#endif
}

#if defined(__x86_64__)
TEST(ChooseIsa, WeightsAreUnpackedAheadWhereThatPays) {
  CpuFeatures features = everything();
  const size_t usual = cpu::linear_kernels_for(CpuIsa::kAvx512, features).panel_rows;
  features.avx512_in_halves = true;
  const cpu::LinearKernels& in_halves = cpu::linear_kernels_for(CpuIsa::kAvx512, features);
  EXPECT_GT(in_halves.panel_rows, usual);
  EXPECT_EQ(in_halves.nibbles, cpu::kAvx512Linear.nibbles);
  features.avx512_vnni = false;
  EXPECT_EQ(&cpu::linear_kernels_for(CpuIsa::kAvx512, features), &cpu::kAvx2Linear);
}
#endif

}  // namespace
}  // namespace skein
