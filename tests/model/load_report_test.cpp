// What Decoder::load reports of its progress.
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/compute_pool.h"
#include "model/decoder.h"
#include "model/goldens.h"

namespace skein {
namespace {

TEST(LoadReport, GoesFromNothingToEverything) {
  ComputePool pool(1);
  for (const testing::Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    const WeightSource source = open_model(golden.folder).value();
    const auto backend = make_cpu_backend(pool, CpuIsa::kScalar, Precision::kDefault);
    std::vector<std::pair<uint64_t, uint64_t>> reports;
    DecoderOptions options;
    options.report = [&](uint64_t done, uint64_t all) { reports.emplace_back(done, all); };
    const auto decoder = Decoder::load(source, *backend, options);
    ASSERT_TRUE(decoder.ok()) << decoder.message();
    ASSERT_GT(reports.size(), 2U);
    EXPECT_EQ(reports.front().first, 0U);
    EXPECT_EQ(reports.back().first, reports.back().second);
    for (size_t i = 1; i < reports.size(); ++i) {
      EXPECT_GE(reports[i].first, reports[i - 1].first);
      EXPECT_EQ(reports[i].second, reports[0].second);
    }
  }
}

}  // namespace
}  // namespace skein
