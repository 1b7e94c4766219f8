// The control plane's own cost, without a model: nanoseconds per running request and per queued
// one.
#include <benchmark/benchmark.h>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kv/kv_allocator.h"
#include "sched/scheduler.h"

namespace skein {
namespace {

// plan + commit while `n` requests decode; a request that ends is replaced at once.
void BM_PlanCommit(benchmark::State& state) {
  const auto n = static_cast<uint32_t>(state.range(0));
  SchedulerConfig c;
  c.pool_blocks = n * 8;
  c.max_batch = n;
  c.max_queue = n + 1;
  c.step_tokens = 64 * n;
  c.max_context = 4096;
  c.vocab_size = 50'000;
  auto scheduler = std::move(ContinuousBatchingScheduler::create(c)).value();
  StepPlan plan;
  StepResult result;
  StepEffects effects;
  TimeUs now = 0;
  uint64_t next_id = 1;
  const auto submit = [&] {
    RequestSpec spec;
    spec.id = RequestId{next_id++};
    spec.prompt.resize(32 + next_id % 32);
    for (size_t i = 0; i < spec.prompt.size(); ++i) {
      spec.prompt[i] = static_cast<TokenId>(random_at(next_id, i) % c.vocab_size);
    }
    spec.max_new_tokens = 100;
    if (!scheduler->submit(std::move(spec), now).ok()) state.SkipWithError("submit refused");
  };
  const auto step = [&] {
    scheduler->plan(now, plan);
    result.reset(plan.step);
    for (size_t i = 0; i < plan.segments.size(); ++i) {
      const auto token = static_cast<TokenId>(i % 100);
      result.add(SegmentOutcome::kOk, std::span(&token, plan.segments[i].samples));
    }
    now += 1000;
    scheduler->commit(result, now, effects);
  };
  for (uint32_t i = 0; i < n; ++i) {
    submit();
    if (i % 16 == 0) step();  // so that they do not all end in the same step
  }
  step();
  for (auto _ : state) {
    step();
    if (effects.ended.empty()) continue;
    state.PauseTiming();
    for (size_t i = 0; i < effects.ended.size(); ++i) submit();
    state.ResumeTiming();
  }
  state.counters["ns_per_request"] = benchmark::Counter(
      static_cast<double>(n) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_PlanCommit)->Arg(8)->Arg(256)->Arg(4096);

// push + pop with `n` waiting, classes mixed, arrivals in order.
void BM_QueuePushPop(benchmark::State& state) {
  const auto n = static_cast<uint64_t>(state.range(0));
  PriorityQueueWithAging queue(10 * kUsPerSecond);
  BatchRequest request;
  uint64_t order = 0;
  const auto push = [&] {
    const auto priority = static_cast<Priority>(random_at(1, order) % kPriorities);
    const TimeUs arrival = static_cast<TimeUs>(order) * 50;
    queue.push(priority, {queue.key_for(arrival, priority), order, &request});
    ++order;
  };
  for (uint64_t i = 0; i < n; ++i) push();
  for (auto _ : state) {
    push();
    queue.pop();
  }
}
BENCHMARK(BM_QueuePushPop)->Arg(1'000)->Arg(1'000'000);

// Hashing and finding a prompt of `n` cached blocks, the cost of a prefix hit.
void BM_PrefixHit(benchmark::State& state) {
  const auto blocks = static_cast<uint32_t>(state.range(0));
  KvAllocator kv({blocks * 2, true, {1, 2}});
  std::vector<TokenId> tokens(size_t{blocks} * kBlockTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  BlockTable table;
  table.reset({}, tokens.size());
  if (!kv.grow(table, tokens.size())) state.SkipWithError("no blocks");
  kv.publish(table, tokens, tokens.size());
  kv.release(table);
  for (auto _ : state) {
    table.reset({}, tokens.size());
    benchmark::DoNotOptimize(kv.take_cached(table, tokens));
    kv.release(table);
  }
  state.SetItemsProcessed(state.iterations() * blocks);
}
BENCHMARK(BM_PrefixHit)->Arg(1)->Arg(256);

}  // namespace
}  // namespace skein
