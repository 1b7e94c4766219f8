#include "bench/fleet_sim.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::bench {
namespace {

using ::testing::HasSubstr;

FleetLoad fleet_of(uint32_t nodes, FleetRouter router) {
  FleetLoad load;
  load.node.scheduler.pool_blocks = 4096;
  load.node.scheduler.max_batch = 32;
  load.node.scheduler.step_tokens = 2048;
  load.node.scheduler.max_context = 1 << 20;
  load.node.scheduler.vocab_size = 50'000;
  load.node.step_us = 5'000;
  load.node.token_us = 125;
  load.nodes = nodes;
  load.router = router;
  return load;
}

std::vector<WorkItem> chats(uint32_t requests, double rate) {
  return synthetic_chats({.requests = requests, .rate = rate, .seed = 3});
}

TEST(FleetSim, OneNodeIsTheSimulationOfOneScheduler) {
  const auto items = chats(300, 2);
  const FleetLoad load = fleet_of(1, FleetRouter::kRoundRobin);
  const auto fleet = simulate_fleet(items, load);
  const auto alone = simulate_schedule(items, load.node);
  ASSERT_TRUE(fleet.ok()) << fleet.message();
  ASSERT_TRUE(alone.ok()) << alone.message();
  EXPECT_EQ(fleet->steps, alone->steps);
  EXPECT_DOUBLE_EQ(fleet->seconds, alone->seconds);
  EXPECT_DOUBLE_EQ(fleet->latency_ms.p99, alone->classes.front().latency_ms.p99);
  EXPECT_NEAR(fleet->p50_s * 1000, alone->classes.front().first_token_ms.p50, 1e-6);
}

// What the design of the fleet rests on: knowing conversations finds twice what turns find, and
// knowing caches finds most and waits least.
TEST(FleetSim, TheOrderOfRouters) {
  const auto items = chats(3000, 12);
  std::array<FleetOutcome, std::size(kFleetRouters)> out;
  for (const FleetRouter router : kFleetRouters) {
    const auto done = simulate_fleet(items, fleet_of(8, router));
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(done->requests, items.size());
    out[static_cast<size_t>(router)] = *done;
  }
  const auto& [random, turns, least, hash, prefix] = out;
  EXPECT_GT(hash.hit_rate, 1.3 * turns.hit_rate);
  EXPECT_GT(hash.hit_rate, 1.3 * least.hit_rate);
  EXPECT_GT(hash.hit_rate, 1.3 * random.hit_rate);
  EXPECT_GT(prefix.hit_rate, hash.hit_rate);
  EXPECT_LT(prefix.p50_s, turns.p50_s);
  EXPECT_LT(prefix.p90_s, hash.p90_s);
  EXPECT_LE(turns.busiest, 1.01);
}

TEST(FleetSim, OneSeedIsOneAnswer) {
  const auto items = chats(1000, 8);
  FleetLoad load = fleet_of(5, FleetRouter::kPrefix);
  load.event_delay_us = 50 * kUsPerMs;
  load.failures = {{40 * kUsPerSecond, 2}};
  const auto first = simulate_fleet(items, load), again = simulate_fleet(items, load);
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->steps, again->steps);
  EXPECT_DOUBLE_EQ(first->p99_s, again->p99_s);
  EXPECT_DOUBLE_EQ(first->hit_rate, again->hit_rate);
}

TEST(FleetSim, WhatIsKnownLateFindsLess) {
  const auto items = chats(2000, 12);
  FleetLoad load = fleet_of(8, FleetRouter::kPrefix);
  const auto at_once = simulate_fleet(items, load);
  load.event_delay_us = 120 * kUsPerSecond;  // four turns of a conversation
  const auto late = simulate_fleet(items, load);
  EXPECT_LT(late->hit_rate, 0.8 * at_once->hit_rate);
}

TEST(FleetSim, NothingIsLostWithANode) {
  const auto items = chats(1000, 8);
  for (const FleetRouter router : kFleetRouters) {
    FleetLoad load = fleet_of(3, router);
    load.failures = {{30 * kUsPerSecond, 1}, {60 * kUsPerSecond, 0}};
    const auto out = simulate_fleet(items, load);
    ASSERT_TRUE(out.ok()) << out.message();
    EXPECT_EQ(out->requests, items.size()) << name_of(router);
    EXPECT_GT(out->run_again, 0U) << name_of(router);
  }
}

TEST(FleetSim, WhatCannotBeIsRefused) {
  const auto items = chats(10, 1);
  FleetLoad load = fleet_of(2, FleetRouter::kHash);
  load.failures = {{0, 2}};
  EXPECT_THAT(simulate_fleet(items, load).message(), HasSubstr("node 3 fails, and there are 2"));
  load.failures = {{0, 0}, {1, 1}};
  EXPECT_THAT(simulate_fleet(items, load).message(), HasSubstr("none is left"));
  EXPECT_THAT(router_of_name("magic").message(), HasSubstr("round-robin"));
  EXPECT_EQ(*router_of_name("prefix"), FleetRouter::kPrefix);
}

TEST(FleetSim, ChatsShareTheirBeginnings) {
  const auto items = chats(500, 5);
  ASSERT_EQ(items.size(), 500U);
  uint64_t longer = 0;
  for (const WorkItem& item : items) {
    EXPECT_LE(item.prompt_tokens, item.pieces.size() * kPieceTokens);
    longer += item.pieces.size() > 4 ? 1 : 0;
  }
  EXPECT_GT(longer, 100U);
  EXPECT_LE(items.front().arrival_us, items.back().arrival_us);
}

TEST(FleetSim, MooncakesTracesAreTaken) {
  const auto items = parse_trace(
      R"({"timestamp": 27, "input_length": 700, "output_length": 5, "hash_ids": [46, 47]})"
      "\n"
      R"({"timestamp": 3, "input_length": 900, "output_length": 6, "hash_ids": [46, 48]})",
      100);
  ASSERT_TRUE(items.ok()) << items.message();
  EXPECT_EQ(items->front().arrival_us, 3'000);
  EXPECT_EQ(items->front().max_tokens, 6U);
  const auto a = made_up_tokens((*items)[0], 1000), b = made_up_tokens((*items)[1], 1000);
  ASSERT_EQ(a.size(), 900U);
  ASSERT_EQ(b.size(), 700U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + kPieceTokens, b.begin()));
  EXPECT_FALSE(std::equal(b.begin() + kPieceTokens, b.end(), a.begin() + kPieceTokens));
  EXPECT_THAT(parse_trace(R"({"input_length": 1025, "hash_ids": [1, 2]})", 1).message(),
              HasSubstr("needs 3"));
}

}  // namespace
}  // namespace skein::bench
