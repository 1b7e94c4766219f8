// A scheduler with a model that always says 7, for tests that look at single steps.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "sched/scheduler.h"

namespace skein {

inline constexpr TokenId kAnswer = 7;

// `count` tokens that no other `kind` has at the same place.
inline std::vector<TokenId> text(uint32_t count, TokenId kind = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 100 + 10'000 * kind);
  return tokens;
}

inline std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Harness {
 public:
  SchedulerConfig config;
  std::unique_ptr<ContinuousBatchingScheduler> scheduler;
  StepPlan plan;
  StepEffects effects;
  TimeUs now = 0;
  std::map<uint64_t, std::vector<TokenId>> answers;
  std::map<uint64_t, FinishReason> ends;

  static SchedulerConfig small() {
    SchedulerConfig c;
    c.pool_blocks = 64;
    c.max_context = 4096;
    c.vocab_size = 1'000'000;
    return c;
  }
  explicit Harness(SchedulerConfig c = small()) : config(c) {
    auto made = ContinuousBatchingScheduler::create(c);
    EXPECT_TRUE(made.ok()) << made.status().message();
    scheduler = std::move(made).value();
  }

  Status submit(uint64_t id, std::vector<TokenId> prompt, uint32_t max_new = 4,
                Priority priority = Priority::NORMAL) {
    RequestSpec spec;
    spec.id = RequestId{id};
    spec.prompt = std::move(prompt);
    spec.max_new_tokens = max_new;
    spec.priority = priority;
    return scheduler->submit(std::move(spec), now);
  }
  void must_submit(uint64_t id, std::vector<TokenId> prompt, uint32_t max_new = 4,
                   Priority priority = Priority::NORMAL) {
    const Status status = submit(id, std::move(prompt), max_new, priority);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Plans and runs one step.
  const StepPlan& step() {
    scheduler->plan(now, plan);
    for (const EndEvent& e : plan.ended) ends[e.request.value] = e.reason;
    if (!plan.empty()) finish(plan, 1000);
    return plan;
  }
  void finish(const StepPlan& p, TimeUs elapsed) {
    StepResult result;
    result.reset(p.step);
    result.elapsed_us = elapsed;
    for (const Segment& segment : p.segments)
      result.add(SegmentOutcome::kOk, std::vector<TokenId>(segment.samples, kAnswer));
    commit(result);
  }
  void commit(const StepResult& result) {
    now += result.elapsed_us;
    scheduler->commit(result, now, effects);
    for (const TokenEvent& e : effects.tokens) {
      EXPECT_EQ(answers[e.request.value].size(), e.index);
      answers[e.request.value].push_back(e.token);
    }
    for (const EndEvent& e : effects.ended) {
      EXPECT_FALSE(ends.contains(e.request.value));
      ends[e.request.value] = e.reason;
    }
    const Status status = scheduler->check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Steps until nothing is left; returns how many.
  int run_out() {
    int steps = 0;
    while (!scheduler->idle() && steps < 10'000) step(), ++steps;
    return steps;
  }
  const Segment* segment_of(uint64_t id) const {
    const auto it = std::find_if(plan.segments.begin(), plan.segments.end(),
                                 [&](const Segment& r) { return r.request.value == id; });
    return it == plan.segments.end() ? nullptr : &*it;
  }
  Explanation explain(uint64_t id) const {
    auto e = scheduler->explain(RequestId{id}, now);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return *e;
  }
};

}  // namespace skein
