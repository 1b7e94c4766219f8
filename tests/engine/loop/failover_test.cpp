// Failover: who takes requests over, and where their cancels go.
#include "engine/loop/failover.h"

#include <gtest/gtest.h>
#include <new>

namespace skein {
namespace {

struct Successor final : RequestCanceller {
  void cancel(RequestId id, FinishReason) override { cancelled.push_back(id); }
  std::vector<RequestId> cancelled;
};

std::vector<Submission> one_request(uint64_t id) {
  std::vector<Submission> requests(1);
  requests[0].id = RequestId(id);
  return requests;
}

TEST(Failover, CancelsGoToWhoeverTookTheRequests) {
  const auto successor = std::make_shared<Successor>();
  std::vector<Submission> taken;
  Failover failover(
      [&](std::vector<Submission> requests, const Status&) {
        taken = std::move(requests);
        return successor;
      },
      2);
  EXPECT_TRUE(failover.possible());
  failover.cancel(RequestId(7), FinishReason::kClient);
  EXPECT_TRUE(successor->cancelled.empty()) << "nothing was handed over yet";
  failover.hand_over(one_request(7), internal_error("lost"));
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].id, RequestId(7));
  failover.cancel(RequestId(7), FinishReason::kClient);
  EXPECT_EQ(successor->cancelled, std::vector{RequestId(7)});
}

TEST(Failover, CancelsThatComeMeanwhileFollowTheRequests) {
  const auto successor = std::make_shared<Successor>();
  Failover* under_way = nullptr;
  Failover failover(
      [&](const std::vector<Submission>&, const Status&) {
        under_way->cancel(RequestId(8), FinishReason::kStop);
        return successor;
      },
      2);
  under_way = &failover;
  failover.begin();
  failover.cancel(RequestId(7), FinishReason::kClient);
  failover.hand_over(one_request(7), internal_error("lost"));
  EXPECT_EQ(successor->cancelled, (std::vector{RequestId(7), RequestId(8)}));
  failover.cancel(RequestId(9), FinishReason::kClient);
  EXPECT_EQ(successor->cancelled.size(), 3U) << "none is told twice";
}

TEST(Failover, KeepsNoMoreCancelsThanItWasMadeFor) {
  const auto successor = std::make_shared<Successor>();
  Failover failover([&](const std::vector<Submission>&, const Status&) { return successor; }, 2);
  failover.begin();
  for (uint64_t id = 1; id <= 5; ++id) failover.cancel(RequestId(id), FinishReason::kClient);
  failover.hand_over({}, internal_error("lost"));
  EXPECT_EQ(successor->cancelled.size(), 2U);
}

TEST(Failover, WhatTheReceiverThrowsPassesThrough) {
  Failover failover(
      [](const std::vector<Submission>&, const Status&) -> std::shared_ptr<RequestCanceller> {
        throw std::bad_alloc();
      },
      2);
  EXPECT_THROW(failover.hand_over(one_request(1), {}), std::bad_alloc);
  failover.cancel(RequestId(1), FinishReason::kClient);  // to nobody
  EXPECT_FALSE(Failover(nullptr, 2).possible());
}

}  // namespace
}  // namespace skein
