#include "backend/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/seeded_backend.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Registry, MakesEveryBackendByItsName) {
  ComputePool pool(1);
  const auto cpu = make_backend({}, pool);
  ASSERT_TRUE(cpu.ok()) << cpu.message();
  EXPECT_THAT(std::string((*cpu)->name()), StartsWith("cpu/"));
  const auto scalar = make_backend({.isa = "scalar"}, pool);
  ASSERT_TRUE(scalar.ok()) << scalar.message();
  EXPECT_EQ((*scalar)->name(), "cpu/scalar");
  const auto reference = make_backend({.device = "reference"}, pool);
  ASSERT_TRUE(reference.ok()) << reference.message();
  EXPECT_EQ((*reference)->name(), "reference");
  const auto hopper = make_backend({.device = "reference:hopper"}, pool);
  ASSERT_TRUE(hopper.ok()) << hopper.message();
  EXPECT_EQ((*hopper)->name(), "reference/hopper");
  for (const auto* backend : {&*cpu, &*reference}) {
    EXPECT_GT((*backend)->available(), 0U);
    const float logits[] = {1, 3, 2};
    EXPECT_EQ((*backend)->scan().argmax(logits).index, 1U);
  }
}

// One without memory of its own fills nothing.
TEST(Registry, ASeedIsForDevicesAlone) {
  ComputePool pool(1);
  const auto cpu = make_seeded_backend({.device = "auto", .isa = "scalar"}, pool, 1);
  ASSERT_TRUE(cpu.ok()) << cpu.message();
  EXPECT_EQ((*cpu)->name(), "cpu/scalar");
  EXPECT_EQ((*cpu)->device(), nullptr);
  const auto none = make_seeded_backend({.device = "cuda:99"}, pool, 1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.message(), make_backend({.device = "cuda:99"}, pool).message());
}

TEST(Registry, RefusesWhatItDoesNotKnow) {
  ComputePool pool(1);
  const auto device = make_backend({.device = "abacus"}, pool);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(device.message(), HasSubstr("'abacus' is no backend; there are cpu, reference"));
  const auto profile = make_backend({.device = "reference:volta"}, pool);
  ASSERT_FALSE(profile.ok());
  EXPECT_THAT(profile.message(), HasSubstr("'reference:volta'"));
  const auto isa = make_backend({.isa = "mmx"}, pool);
  ASSERT_FALSE(isa.ok());
  EXPECT_THAT(isa.message(), HasSubstr("mmx"));
}

}  // namespace
}  // namespace skein
