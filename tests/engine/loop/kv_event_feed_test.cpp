#include "engine/loop/kv_event_feed.h"

#include <gtest/gtest.h>
#include <map>

#include "sched/harness.h"
#include "sim/allocation_hooks.h"

namespace skein {
namespace {

SchedulerConfig with_events(uint32_t blocks) {
  SchedulerConfig config = Harness::small();
  config.pool_blocks = blocks;
  config.kv_events = true;
  return config;
}

// What one who applies the notices believes: hash to parent.
struct Believer {
  std::map<uint64_t, uint64_t> blocks;

  void apply(std::span<const KvNotice> notices) {
    for (const KvNotice& notice : notices) {
      switch (notice.kind) {
        case KvNotice::Kind::kCleared:
          blocks.clear();
          break;
        case KvNotice::Kind::kStored:
          EXPECT_TRUE(notice.parent_hash == 0 || blocks.count(notice.parent_hash) == 1);
          EXPECT_TRUE(blocks.emplace(notice.hash, notice.parent_hash).second);
          break;
        case KvNotice::Kind::kRemoved:
          EXPECT_EQ(blocks.erase(notice.hash), 1u);
          break;
      }
    }
  }
};

std::map<uint64_t, uint64_t> truth(const ContinuousBatchingScheduler& scheduler) {
  std::map<uint64_t, uint64_t> blocks;
  for (uint32_t i = 0; i < scheduler.pool_blocks(); ++i) {
    if (!scheduler.is_cached(BlockId{i})) continue;
    const PrefixCache::Contents contents = scheduler.cached_contents(BlockId{i});
    blocks.emplace(contents.hash, contents.parent_hash);
  }
  return blocks;
}

void run(Harness& h, KvEventFeed& feed, uint64_t id, const std::vector<TokenId>& prompt) {
  h.must_submit(id, prompt, 40);
  while (!h.scheduler->idle()) {
    h.step();
    const uint64_t before = sim::allocations();
    feed.add(*h.scheduler);
    EXPECT_EQ(sim::allocations() - before, 0U) << "a step pays for who listens";
    h.scheduler->clear_kv_events();
  }
}

TEST(KvEventFeed, WhoTakesAllKnowsTheCache) {
  Harness h(with_events(12));
  KvEventFeed feed;
  int wakes = 0;
  feed.set_wake([&wakes] { ++wakes; });
  feed.begin(12);
  EXPECT_EQ(wakes, 1) << "nothing is cached";
  Believer believer;
  for (uint64_t id = 1; id <= 30; ++id) {
    run(h, feed, id, text(40 + id * 7 % 150, static_cast<TokenId>(1 + id % 3)));
    believer.apply(feed.take());
    EXPECT_EQ(believer.blocks, truth(*h.scheduler));
  }
  EXPECT_EQ(feed.resets(), 0u);
  EXPECT_GT(h.scheduler->stats().evictions, 20u);
  feed.end();
  believer.apply(feed.take());
  EXPECT_TRUE(believer.blocks.empty());
}

TEST(KvEventFeed, WhoIsLateIsToldAllAnewAndMissesNothing) {
  Harness h(with_events(12));
  KvEventFeed feed;
  feed.begin(12);
  Believer believer;
  believer.apply(feed.take());
  for (uint64_t id = 1; id <= 60; ++id) {
    run(h, feed, id, text(40 + id * 11 % 150, static_cast<TokenId>(1 + id)));
    if (id % 20 != 0) continue;  // much more than fits has happened
    believer.apply(feed.take());
    EXPECT_EQ(believer.blocks, truth(*h.scheduler));
  }
  EXPECT_GT(feed.resets(), 2u);
}

TEST(KvEventFeed, ANewEngineBeginsWithNothing) {
  KvEventFeed feed;
  feed.begin(12);
  Believer believer;
  {
    Harness h(with_events(12));
    run(h, feed, 1, text(100));
    believer.apply(feed.take());
    EXPECT_FALSE(believer.blocks.empty());
    run(h, feed, 2, text(100, 5));
  }
  feed.begin(40);
  const auto notices = feed.take();
  ASSERT_EQ(notices.size(), 1u) << "what the old one had to say no longer matters";
  believer.apply(notices);
  EXPECT_TRUE(believer.blocks.empty());
}

}  // namespace
}  // namespace skein
