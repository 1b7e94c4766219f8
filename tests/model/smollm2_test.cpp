// The default model against a float32 run of its dequantized weights.
#include "model/smollm2.h"

#include <gtest/gtest.h>

#include "format/test_folder.h"

namespace skein {
namespace {

using testing::Runner;

constexpr size_t kEvery = 3;  // of 42 cases, to keep this quick

TEST(SmolLm2, ContinuesAsTheFloat32RunDoes) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  Runner runner(testing::default_model_path(), Precision::kF32, Runner::Arithmetic::kCpuThreads);
  ASSERT_TRUE(runner.status().ok()) << runner.status().message();
  const Json cases = testing::smollm2_cases();
  size_t equal = 0;
  for (size_t i = 0; i < cases.size(); i += kEvery) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    testing::check_smollm2_case(runner, cases[i], equal);
  }
  EXPECT_GT(equal, 300u);
}

}  // namespace
}  // namespace skein
