#include "sched/deadline_heap.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "base/rng.h"
#include "sched/batch_request.h"

namespace skein {
namespace {

TEST(DeadlineHeap, GivesTheSoonestAndForgetsTheRemoved) {
  Rng rng(3);
  std::vector<BatchRequest> requests(500);
  std::vector<BatchRequest*> in;
  DeadlineHeap heap;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].order = i;
    requests[i].deadline = static_cast<TimeUs>(rng.below(100));
    heap.add(requests[i]);
    in.push_back(&requests[i]);
  }
  EXPECT_EQ(heap.due(-1), nullptr);
  while (!in.empty()) {
    const auto soonest =
        std::min_element(in.begin(), in.end(), [](const BatchRequest* a, const BatchRequest* b) {
          return std::pair(a->deadline, a->order) < std::pair(b->deadline, b->order);
        });
    ASSERT_EQ(heap.due(kNever), *soonest);
    ASSERT_EQ(heap.due((*soonest)->deadline - 1), nullptr);
    const auto victim =
        rng.chance(1, 2) ? soonest : in.begin() + static_cast<ptrdiff_t>(rng.below(in.size()));
    heap.remove(**victim);
    heap.remove(**victim);  // harmless
    in.erase(victim);
    ASSERT_EQ(heap.size(), in.size());
  }
  EXPECT_EQ(heap.due(kNever), nullptr);
}

}  // namespace
}  // namespace skein
