// A step allocates nothing.
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "model/count_allocations.h"
#include "model/goldens.h"
#include "model/runner.h"

namespace skein {
namespace {

using testing::Runner;

TEST(Allocations, AStepMakesNone) {
  for (const testing::Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    Runner runner(golden.folder, Precision::kDefault);
    ASSERT_TRUE(runner.status().ok()) << runner.status().message();
    const testing::Feed feed = Runner::feed(Runner::kRows);
    const std::vector<TokenId> tokens(Runner::kRows, 7);
    std::vector<uint32_t> wanted(Runner::kRows);
    std::iota(wanted.begin(), wanted.end(), 0);
    uint64_t before = 0;
    for (const uint32_t rows : {Runner::kRows, 1u, 33u, Runner::kRows}) {
      const Sequence sequence{
          .first_row = 0, .rows = rows, .start = 0, .writes_kv = true, .blocks = feed.blocks};
      const bool has_seen_its_largest = before > 0;
      before = testing::allocations();
      runner.decoder().forward(
          {std::span(tokens).first(rows), {&sequence, 1}, std::span(wanted).first(rows)},
          runner.cache());
      if (!has_seen_its_largest) continue;
      EXPECT_EQ(testing::allocations(), before) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace skein
