// Prefix sharing as the scheduler does it.
#include <gtest/gtest.h>

#include "sched/harness.h"

namespace skein {
namespace {

TEST(Prefix, ASecondRequestComputesOnlyItsOwnTail) {
  Harness h;
  const auto system = text(320);
  h.must_submit(1, system + text(20, 1), 50);
  while (h.answers[1].empty()) h.step();
  h.must_submit(2, system + text(30, 2), 50);
  h.step();
  ASSERT_NE(h.segment_of(2), nullptr);
  EXPECT_EQ(h.segment_of(2)->start, 320u);
  EXPECT_EQ(h.segment_of(2)->count, 30u);
  EXPECT_EQ(h.explain(2).cached_tokens, 320u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(h.segment_of(2)->blocks[i], h.segment_of(1)->blocks[i]);
  EXPECT_NE(h.segment_of(2)->blocks[10], h.segment_of(1)->blocks[10]);
  EXPECT_EQ(h.scheduler->stats().prefix_hit_tokens, 320u);
  h.run_out();
  EXPECT_EQ(h.scheduler->stats().held_blocks, 0u);
}

TEST(Prefix, AFullyCachedPromptComputesOneTokenAndWritesNothing) {
  Harness h;
  h.must_submit(1, text(64), 2);
  h.run_out();
  h.must_submit(2, text(64), 2);
  h.step();
  ASSERT_EQ(h.plan.segments.size(), 1u);
  EXPECT_EQ(h.plan.segments[0].start, 63u);
  EXPECT_EQ(h.plan.segments[0].count, 1u);
  EXPECT_TRUE(h.plan.segments[0].samples);
  EXPECT_FALSE(h.plan.segments[0].writes_kv);
  EXPECT_EQ(h.plan.segments[0].blocks.size(), 2u);
  EXPECT_EQ(h.scheduler->stats().full_hits, 1u);
  h.step();
  EXPECT_EQ(h.plan.segments[0].start, 64u);
  EXPECT_TRUE(h.plan.segments[0].writes_kv);
  EXPECT_EQ(h.plan.segments[0].blocks.size(), 3u) << "it goes on in a block of its own";
}

TEST(Prefix, TheNextTurnOfAChatHitsTheAnswerToo) {
  Harness h;
  h.must_submit(1, text(50), 50);
  h.run_out();
  h.must_submit(2, text(50) + std::vector<TokenId>(50, kAnswer) + text(10, 3), 2);
  h.step();
  EXPECT_EQ(h.segment_of(2)->start, 96u);
}

TEST(Prefix, OneNewSystemPromptIsComputedOnceForMany) {
  SchedulerConfig c = Harness::small();
  c.pool_blocks = 256;
  Harness h(c);
  for (uint64_t id = 1; id <= 10; ++id)
    h.must_submit(id, text(96) + text(5, static_cast<TokenId>(id)), 2);
  h.step();
  ASSERT_EQ(h.plan.admitted.size(), 10u);
  EXPECT_EQ(h.plan.segments.size(), 1u)
      << "the others wait one step for its blocks instead of computing them again";
  EXPECT_EQ(h.explain(2).wait, WaitReason::kPrefixUnderWay);
  h.step();
  EXPECT_EQ(h.plan.segments.size(), 10u);
  for (uint64_t id = 2; id <= 10; ++id) EXPECT_EQ(h.segment_of(id)->start, 96u);
  h.run_out();
  EXPECT_EQ(h.scheduler->stats().computed_tokens, 96u + 10 * 5 + 10);
}

TEST(Prefix, APrefillLooksAgainAtEveryBorder) {
  SchedulerConfig c = Harness::small();
  c.step_tokens = 80;  // 64 for the first, up to a border; what is left lets the second in
  Harness h(c);
  h.must_submit(1, text(320) + text(5, 1), 2);
  h.must_submit(2, text(320) + text(5, 2), 2);
  h.step();
  EXPECT_EQ(h.plan.admitted.size(), 2u);
  for (uint32_t computed = 64; computed < 320; computed += 64) {
    h.step();
    EXPECT_EQ(h.segment_of(1)->start, computed);
    EXPECT_EQ(h.segment_of(2), nullptr);
    EXPECT_EQ(h.explain(2).computed_tokens, computed) << "taken over as it comes into being";
  }
  h.run_out();
  EXPECT_EQ(h.scheduler->stats().computed_tokens, 325u + 5 + 2);
  EXPECT_EQ(h.scheduler->stats().prefill_hits, 5u);
}

TEST(Prefix, WhoComputesABlockMayFailAndTheNextTakesOver) {
  Harness h;
  h.must_submit(1, text(96), 2);
  h.must_submit(2, text(96), 2);
  h.scheduler->plan(h.now, h.plan);
  ASSERT_EQ(h.plan.segments.size(), 1u);
  StepResult result;
  result.reset(h.plan.step);
  result.add(SegmentOutcome::kFault);
  h.commit(result);
  h.step();
  EXPECT_EQ(h.segment_of(2)->start, 0u) << "nothing of the failed segment is trusted";
  h.run_out();
  EXPECT_EQ(h.ends.at(1), FinishReason::kError);
  EXPECT_EQ(h.ends.at(2), FinishReason::kLength);
}

TEST(Prefix, TenantsDoNotShareOrWaitForEachOther) {
  Harness h;
  for (uint64_t id : {1, 2}) {
    RequestSpec spec;
    spec.id = RequestId{id};
    spec.prompt = text(96);
    spec.max_new_tokens = 2;
    spec.salt = {id, 0};
    ASSERT_TRUE(h.scheduler->submit(std::move(spec), 0).ok());
  }
  h.step();
  ASSERT_EQ(h.plan.segments.size(), 2u);
  EXPECT_EQ(h.segment_of(1)->count, 96u);
  EXPECT_EQ(h.segment_of(2)->count, 96u);
}

TEST(Prefix, OffMeansEverythingIsComputed) {
  SchedulerConfig c = Harness::small();
  c.prefix_cache = false;
  Harness h(c);
  h.must_submit(1, text(96), 2);
  h.must_submit(2, text(96), 2);
  h.step();
  EXPECT_EQ(h.plan.segments.size(), 2u);
  h.run_out();
  EXPECT_EQ(h.scheduler->stats().computed_tokens, 2u * 97);
  EXPECT_EQ(h.scheduler->stats().cached_blocks, 0u);
}

}  // namespace
}  // namespace skein
