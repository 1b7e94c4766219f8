#include "sched/priority_queue_with_aging.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "base/rng.h"
#include "sched/batch_request.h"

namespace skein {
namespace {

constexpr TimeUs kPerClass = 10 * kUsPerSecond;  // rate 0.1 class per second

struct Waiting {
  TimeUs arrival;
  Priority priority;
  uint64_t order;
  PriorityQueueWithAging::Handle handle;
};

TEST(PriorityQueueWithAging, ClassesAgeIntoEachOther) {
  PriorityQueueWithAging queue(kPerClass);
  const auto key = [&](double seconds, Priority p) {
    return queue.key_for(static_cast<TimeUs>(seconds * 1e6), p);
  };
  EXPECT_LT(key(0, Priority::HIGH), key(0, Priority::NORMAL));
  EXPECT_LT(key(0, Priority::NORMAL), key(0, Priority::LOW));
  // 20 s between LOW and HIGH: what comes later than that cannot overtake.
  EXPECT_LT(key(19.9, Priority::HIGH), key(0, Priority::LOW));
  EXPECT_GT(key(20.1, Priority::HIGH), key(0, Priority::LOW));
  EXPECT_EQ(queue.effective_priority_milli(0, Priority::LOW, 0), 2000);
  EXPECT_EQ(queue.effective_priority_milli(0, Priority::LOW, 15 * kUsPerSecond), 500);
  EXPECT_EQ(queue.effective_priority_milli(0, Priority::NORMAL, 3600 * kUsPerSecond),
            1000 - 360'000);
}

// Against the definition: at every pop, the smallest class - rate x wait, ties by order.
TEST(PriorityQueueWithAging, OrderIsThatOfTheDefinitionAtAnyMoment) {
  Rng rng(5);
  PriorityQueueWithAging queue(kPerClass);
  std::vector<Waiting> model;
  std::vector<BatchRequest> dummy(1);
  TimeUs now = 0;
  uint64_t order = 0;
  std::vector<Waiting> popped;
  const auto push = [&](Waiting w) {
    w.handle =
        queue.push(w.priority, {queue.key_for(w.arrival, w.priority), w.order, dummy.data()});
    model.push_back(w);
  };
  for (int step = 0; step < 20'000; ++step) {
    now += static_cast<TimeUs>(rng.below(kUsPerSecond));
    const uint64_t dice = rng.below(10);
    if (dice < 5) {
      push({now, static_cast<Priority>(rng.below(3)), order++, {}});
    } else if (dice < 6 && !popped.empty()) {  // preempted: comes back to its old place
      push(popped.back());
      popped.pop_back();
    } else if (dice < 7 && !model.empty()) {  // cancelled
      const size_t i = rng.below(model.size());
      queue.erase(model[i].handle);
      model.erase(model.begin() + static_cast<ptrdiff_t>(i));
    } else if (!model.empty()) {
      const auto effective = [&](const Waiting& w) {
        return std::pair(static_cast<TimeUs>(w.priority) * kPerClass - (now - w.arrival), w.order);
      };
      const auto best = std::min_element(
          model.begin(), model.end(),
          [&](const Waiting& a, const Waiting& b) { return effective(a) < effective(b); });
      ASSERT_EQ(queue.top().order, best->order);
      queue.pop();
      popped.push_back(*best);
      model.erase(best);
    }
    ASSERT_EQ(queue.size(), model.size());
  }
  std::sort(model.begin(), model.end(), [&](const Waiting& a, const Waiting& b) {
    return std::pair(queue.key_for(a.arrival, a.priority), a.order) <
           std::pair(queue.key_for(b.arrival, b.priority), b.order);
  });
  size_t visited = 0;
  queue.visit([&](const PriorityQueueWithAging::Entry& entry) {
    ASSERT_LT(visited, model.size());
    EXPECT_EQ(entry.order, model[visited++].order);
  });
  EXPECT_EQ(visited, model.size());
}

TEST(PriorityQueueWithAgingDeathTest, MisuseIsABrokenInvariant) {
  PriorityQueueWithAging queue(kPerClass);
  EXPECT_DEATH(queue.top(), "empty queue");
  EXPECT_DEATH(queue.erase({Priority::LOW, 3}), "handle 3 of 0");
}

}  // namespace
}  // namespace skein
