// What people who look at a scheduler are shown.
#include <algorithm>
#include <gtest/gtest.h>

#include "sched/harness.h"

namespace skein {
namespace {

uint32_t count_of(const SchedulerView& view, BlockUse use) {
  return static_cast<uint32_t>(
      std::count_if(view.cells.begin(), view.cells.end(),
                    [use](const SchedulerView::Cell& cell) { return cell.use == use; }));
}

TEST(View, ShowsEveryBlockAndWhoHoldsIt) {
  Harness h;
  const auto system = text(320);
  h.must_submit(1, system + text(20, 1), 50);
  while (h.answers[1].empty()) h.step();
  h.must_submit(2, system + text(30, 2), 50);
  h.step();
  const SchedulerView view = h.scheduler->view(0);
  ASSERT_EQ(view.requests.size(), 2u);
  EXPECT_EQ(view.cell_blocks, 1u);
  ASSERT_EQ(view.cells.size(), h.scheduler->config().pool_blocks);
  EXPECT_EQ(count_of(view, BlockUse::kShared), 10u);
  EXPECT_EQ(count_of(view, BlockUse::kHeld), 2u);
  EXPECT_EQ(count_of(view, BlockUse::kShared) + count_of(view, BlockUse::kHeld),
            h.scheduler->stats().held_blocks);
  for (const BlockId block : h.segment_of(2)->blocks) {
    const SchedulerView::Cell& cell = view.cells[block.value];
    ASSERT_LT(cell.holder, view.requests.size());
    EXPECT_EQ(view.requests[cell.holder].id, RequestId{2});
  }
  h.run_out();
  const SchedulerView after = h.scheduler->view(0);
  EXPECT_TRUE(after.requests.empty());
  EXPECT_EQ(count_of(after, BlockUse::kCached), h.scheduler->stats().cached_blocks);
  EXPECT_EQ(count_of(after, BlockUse::kHeld), 0u);
  for (const SchedulerView::Cell& cell : after.cells) {
    EXPECT_EQ(cell.holder, SchedulerView::kNobody);
  }
}

TEST(View, WhoWaitsComesBehindWhoRunsInTheOrderOfTheQueue) {
  SchedulerConfig c = Harness::small();
  c.max_batch = 1;
  Harness h(c);
  for (uint64_t id = 1; id <= 4; ++id) h.must_submit(id, text(5, static_cast<TokenId>(id)), 50);
  h.step();
  const SchedulerView view = h.scheduler->view(0);
  ASSERT_EQ(view.requests.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(view.requests[i].id, RequestId{i + 1});
    EXPECT_EQ(view.requests[i].queue_position, i);
  }
  EXPECT_EQ(view.requests[1].wait, WaitReason::kBatchFull);
  EXPECT_EQ(view.requests[3].wait, WaitReason::kBehindOthers);
}

TEST(View, IsBoundedHoweverLargeQueueAndPoolAre) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 5000;
  c.max_queue = 1000;
  Harness h(c);
  for (uint64_t id = 1; id <= 900; ++id) h.must_submit(id, text(5), 50);
  h.step();
  const SchedulerView view = h.scheduler->view(0);
  EXPECT_EQ(view.requests.size(), SchedulerView::kMaxRequests);
  EXPECT_EQ(view.cell_blocks, 5u);
  EXPECT_EQ(view.cells.size(), 1000u);
}

}  // namespace
}  // namespace skein
