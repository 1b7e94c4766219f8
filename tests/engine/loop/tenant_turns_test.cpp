#include "engine/loop/tenant_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace skein {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> all_of(TenantTurns<std::string>& turns) {
  std::vector<std::string> order;
  while (!turns.empty()) order.push_back(turns.pop());
  return order;
}

TEST(TenantTurns, OneTenantIsServedInTheOrderOfArrival) {
  TenantTurns<std::string> turns;
  for (const char* name : {"a", "b", "c"}) turns.push(7, name);
  EXPECT_THAT(all_of(turns), ElementsAre("a", "b", "c"));
}

TEST(TenantTurns, WhoHasMuchWaitingKeepsNobodyElseWaiting) {
  TenantTurns<std::string> turns;
  for (const char* name : {"a1", "a2", "a3", "a4"}) turns.push(1, name);
  for (const char* name : {"b1", "b2", "b3"}) turns.push(2, name);
  turns.push(3, "c1");
  EXPECT_THAT(all_of(turns), ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "b3", "a4"));
}

// Each request comes again when its token was drawn, so that a flood never has fewer waiting.
TEST(TenantTurns, OneThatComesLateIsNextAfterAFloodOfSeveral) {
  TenantTurns<std::string> turns;
  const auto flood = [&turns](int times) {
    for (int i = 0; i < times; ++i) {
      const std::string name = turns.pop();
      turns.push(name == "a" ? 1 : 2, name);
    }
  };
  for (int i = 0; i < 20; ++i) turns.push(1, "a");
  for (int i = 0; i < 20; ++i) turns.push(2, "b");
  flood(1000);
  turns.push(3, "c");
  int before = 0;
  while (turns.pop() != "c") ++before;
  EXPECT_LE(before, 2);
  EXPECT_EQ(turns.size(), 40U - static_cast<size_t>(before));
}

TEST(TenantTurns, WhatHasGoneIsLeftOut) {
  TenantTurns<std::string> turns;
  for (const char* name : {"a", "b", "c"}) turns.push(1, name);
  turns.erase_if([](const std::string& name) { return name == "b"; });
  EXPECT_THAT(all_of(turns), ElementsAre("a", "c"));
}

}  // namespace
}  // namespace skein
