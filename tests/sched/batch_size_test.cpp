// How many requests run at a time where nobody has said.
#include <gtest/gtest.h>

#include "sched/harness.h"

namespace skein {
namespace {

TEST(Scheduler, ABatchGrowsAsLongAsItsStepsStayShort) {
  const auto running = [](uint32_t sure, TimeUs fixed_us, TimeUs token_us, bool one_first = true) {
    SchedulerConfig c = Harness::small();
    c.max_batch = 16;
    c.sure_batch = sure;
    Harness h(c);
    const auto run = [&](uint32_t first, uint32_t last, int steps) {
      for (uint32_t i = first; i <= last; ++i) h.must_submit(i, text(5, static_cast<int>(i)), 100);
      for (int i = 0; i < steps; ++i) {
        h.scheduler->plan(h.now, h.plan);
        h.finish(h.plan, fixed_us + token_us * h.plan.tokens);
      }
    };
    if (one_first) run(1, 1, 10);
    run(one_first ? 2 : 1, 20, 40);
    const size_t segments = h.plan.segments.size();
    EXPECT_EQ(h.scheduler->stats().running, segments);
    if (segments < 16) {
      EXPECT_EQ(h.explain(20).wait, WaitReason::kBehindOthers);
    }
    return segments;
  };
  EXPECT_EQ(running(0, 20'000, 500'000), 16u) << "the time does not matter";
  EXPECT_EQ(running(4, 1'000, 1'000), 16u);
  EXPECT_EQ(running(4, 20'000, 500'000, false), 4u);
  // One row takes 35 ms, so a batch may take 140: eight rows. Where none ran alone, 100: five.
  const size_t some = running(4, 20'000, 15'000);
  EXPECT_GE(some, 7u);
  EXPECT_LE(some, 10u);
  const size_t fewer = running(4, 20'000, 15'000, false);
  EXPECT_GE(fewer, 5u);
  EXPECT_LE(fewer, 7u);
  EXPECT_LT(fewer, some);
}

}  // namespace
}  // namespace skein
