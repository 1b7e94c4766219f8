// Kernels of a device that begin while the one before still runs, thousands of times, beside others
// that delay them: whoever reads what is not yet written has another result once.
#include "backend/busy_device.h"
#include "backend/sequence_conformance.h"

namespace skein {
namespace {

using OpsBesideOthers = OpsInARow;

TEST_P(OpsBesideOthers, LeaveTheSameEveryTime) {
  constexpr int kTimes = 3'000;
  const Weights all = weights();
  const auto cache =
      make_cache(backend_, KvType::kBf16, 480, kShape.kv_heads, kShape.head_dim, false);
  const size_t tokens = size_t{480} * kBlockTokens;
  fill(backend_, *cache, OwnedRows::random(tokens, kKvWidth, rng_),
       OwnedRows::random(tokens, kKvWidth, rng_));
  Shuffled blocks(480, rng_);
  const std::vector<Sequence> many = single_rows(blocks);
  const testing::BusyDevice busy(7);
  for (const std::span<const Sequence> sequences :
       {std::span(many).first(2), std::span(many).first(20)}) {
    const std::vector<float> input = random_floats(sequences.size() * kWidth, rng_);
    Left first;
    int runs = 0;
    run_ops(backend_, all, input, sequences, *cache, kTimes, [&](Left left) {
      if (runs++ == 0)
        first = std::move(left);
      else
        ASSERT_TRUE(agree_everywhere(left, first)) << sequences.size() << " rows, run " << runs;
    });
  }
  EXPECT_GT(busy.count(), 100U);
}

// What overlaps is what is not float32.
std::vector<BackendParam> overlapping_params() {
  std::vector<BackendParam> params = sequence_params();
  std::erase_if(params, [](const BackendParam& param) {
    return param.backend.computes_on_host || param.precision == Precision::kF32;
  });
  return params;
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsBesideOthers, ::testing::ValuesIn(overlapping_params()),
                         param_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpsBesideOthers);

}  // namespace
}  // namespace skein
