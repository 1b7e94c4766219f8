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

// A scheduler that always has `n` requests to decode: one that ends is replaced.
class Busy {
 public:
  Busy(uint32_t n, uint32_t pool_blocks) {
    config_.pool_blocks = pool_blocks;
    config_.max_batch = n;
    config_.max_queue = n + 1;
    config_.step_tokens = 64 * n;
    config_.max_context = 4096;
    config_.vocab_size = 50'000;
    scheduler_ = std::move(ContinuousBatchingScheduler::create(config_)).value();
    for (uint32_t i = 0; i < n; ++i) {
      submit();
      if (i % 16 == 0) step();  // so that they do not all end in the same step
    }
    step();
  }
  void step() {
    scheduler_->plan(now_, plan_);
    result_.reset(plan_.step);
    for (size_t i = 0; i < plan_.segments.size(); ++i) {
      const auto token = static_cast<TokenId>(i % 100);
      result_.add(SegmentOutcome::kOk, std::span(&token, plan_.segments[i].samples));
    }
    now_ += 1000;
    scheduler_->commit(result_, now_, effects_);
  }
  size_t ended() const { return effects_.ended.size(); }
  void replace_ended() {
    for (size_t i = 0; i < effects_.ended.size(); ++i) submit();
  }
  bool was_refused() const { return was_refused_; }
  SchedulerView view() const { return scheduler_->view(now_); }

 private:
  void submit() {
    RequestSpec spec;
    spec.id = RequestId{next_id_++};
    spec.prompt.resize(32 + next_id_ % 32);
    for (size_t i = 0; i < spec.prompt.size(); ++i) {
      spec.prompt[i] = static_cast<TokenId>(random_at(next_id_, i) % config_.vocab_size);
    }
    spec.max_new_tokens = 100;
    was_refused_ |= !scheduler_->submit(std::move(spec), now_).ok();
  }

  SchedulerConfig config_;
  std::unique_ptr<ContinuousBatchingScheduler> scheduler_;
  StepPlan plan_;
  StepResult result_;
  StepEffects effects_;
  TimeUs now_ = 0;
  uint64_t next_id_ = 1;
  bool was_refused_ = false;
};

// plan + commit while `n` requests decode.
void BM_PlanCommit(benchmark::State& state) {
  const auto n = static_cast<uint32_t>(state.range(0));
  Busy busy(n, n * 8);
  for (auto _ : state) {
    busy.step();
    if (busy.ended() == 0) continue;
    state.PauseTiming();
    busy.replace_ended();
    state.ResumeTiming();
  }
  if (busy.was_refused()) state.SkipWithError("submit refused");
  state.counters["ns_per_request"] = benchmark::Counter(
      static_cast<double>(n) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_PlanCommit)->Arg(8)->Arg(256)->Arg(4096);

// What the engine's thread does for each frame of /v1/live, with `n` requests and a pool of 4,096.
void BM_View(benchmark::State& state) {
  const auto n = static_cast<uint32_t>(state.range(0));
  const Busy busy(n, 4096);
  for (auto _ : state) benchmark::DoNotOptimize(busy.view());
}
BENCHMARK(BM_View)->Arg(32)->Arg(256);

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
