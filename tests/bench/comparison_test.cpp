// run_benchmark over a stand-in for a model, with the real scheduler and engine between.
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

#include "bench/run_benchmark.h"
#include "bench/workload.h"
#include "engine/fake_runner.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein::bench {
namespace {

using ::testing::ElementsAre;

constexpr TimeUs kStepTime = 2 * kUsPerMs;

// The time of a test, which only its model moves: a step ends when whoever reads has taken the
// tokens of the step before, so that every token is read at the time at which it was made.
class Pace {
 public:
  ManualClock clock;

  void level_begins() {
    const std::lock_guard lock(mutex_);
    made_ = taken_ = 0;
  }
  void tokens_taken(uint64_t so_far) {
    const std::lock_guard lock(mutex_);
    taken_ = so_far;
    changed_.notify_all();
  }
  // Nobody reads any more.
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void pass_step(TimeUs time) {
    std::unique_lock lock(mutex_);
    const auto is_read = [this] { return released_ || taken_ >= made_; };
    if (!changed_.wait_for(lock, std::chrono::seconds(20), is_read)) {
      ADD_FAILURE() << taken_ << " of " << made_ << " tokens were read";
      released_ = true;
    }
    clock.advance(time);
  }
  void tokens_made(uint64_t count) {
    const std::lock_guard lock(mutex_);
    made_ += count;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t made_ = 0;
  uint64_t taken_ = 0;
  bool released_ = false;
};

// A step takes its time whatever the batch: what a model does that is bound by memory. Prompts cost
// more, where `prefill_time` says so. Long prompts, which nobody counts the tokens of, are those
// that reach `long_prompt`.
class TimedRunner final : public StepRunner {
 public:
  TimedRunner(std::shared_ptr<FakeModel> model, Pace& pace, TimeUs prefill_time,
              uint32_t long_prompt)
      : inner_(std::move(model)),
        pace_(pace),
        prefill_time_(prefill_time),
        long_prompt_(long_prompt) {}
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    segments_ = segments;
    inner_.start(segments, samplers);
  }
  TimeUs finish(const StepOutput& output) override {
    TimeUs time = kStepTime;
    for (const Segment& segment : segments_) time += (segment.count - 1) * prefill_time_;
    pace_.pass_step(time);
    const TimeUs taken = inner_.finish(output);
    for (size_t i = 0; i < segments_.size(); ++i) {
      const bool is_counted = segments_[i].start + segments_[i].count < long_prompt_;
      if (is_counted) pace_.tokens_made(output.results[i].tokens.size());
    }
    return taken;
  }

 private:
  FakeRunner inner_;
  Pace& pace_;
  const TimeUs prefill_time_;
  const uint32_t long_prompt_;
  std::span<const Segment> segments_;
};

class FakeTarget final : public BenchTarget {
 public:
  explicit FakeTarget(Pace& pace) : pace_(pace) {}

  Result<uint32_t> generate(const BenchRequest& request, const std::function<void()>& on_token,
                            const std::atomic<bool>& cancel) override {
    for (uint32_t i = 0; i < std::min(request.max_tokens, most_alone) && !cancel; ++i) {
      pace_.clock.advance(kStepTime);
      on_token();
    }
    return 0U;
  }
  Result<InferenceService::Owned<InferenceService>> start(uint32_t batch,
                                                          std::span<const BenchRequest>) override {
    batches.push_back(batch);
    EngineOptions options;
    options.scheduler.pool_blocks = pool_blocks;
    options.scheduler.max_batch = batch;
    options.scheduler.step_tokens = step_tokens;
    options.scheduler.max_context = 4096;
    options.scheduler.vocab_size = kFakeVocab;
    auto engine = BatchInferenceEngine::create(
        std::make_unique<TimedRunner>(model, pace_, prefill_time, long_prompt), options,
        pace_.clock);
    if (!engine.ok()) return engine.status();
    return InferenceService::Owned<InferenceService>(std::move(*engine));
  }

  std::shared_ptr<FakeModel> model = std::make_shared<FakeModel>();
  uint32_t pool_blocks = 4096;
  uint32_t step_tokens = 256;
  TimeUs prefill_time = 0;  // of a token
  uint32_t long_prompt = UINT32_MAX;
  uint32_t most_alone = UINT32_MAX;
  std::vector<uint32_t> batches;

 private:
  Pace& pace_;
};

class Recorder final : public BenchObserver {
 public:
  explicit Recorder(Pace& pace) : pace_(pace) {}
  void begins(const char* mode, uint32_t concurrency, uint64_t) override {
    pace_.level_begins();
    levels.push_back(std::string(mode) + " " + std::to_string(concurrency));
  }
  void got_tokens(uint64_t tokens_so_far) override {
    if (on_tokens) on_tokens(tokens_so_far);
    pace_.tokens_taken(tokens_so_far);
  }
  void ended(const BenchmarkResult& result) override { results.push_back(result); }

  std::vector<std::string> levels;
  std::vector<BenchmarkResult> results;
  std::function<void(uint64_t)> on_tokens;

 private:
  Pace& pace_;
};

std::vector<BenchRequest> requests(uint32_t count, uint32_t max_tokens, bool shared = false) {
  std::vector<BenchRequest> out;
  for (const WorkItem& item : built_in_workload(count, max_tokens, shared)) {
    out.push_back({made_up_tokens(item, kFakeVocab), max_tokens});
  }
  return out;
}

TEST(Comparison, BatchingIsFasterWhereAStepCostsTheSame) {
  Pace pace;
  FakeTarget target(pace);
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  const BenchOptions options{.concurrencies = {1, 8}, .requests = 6, .rounds = 1};
  const auto results =
      run_benchmark(target, requests(8, 20), options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  ASSERT_EQ(results->size(), 3U);
  EXPECT_THAT(recorder.levels, ElementsAre("single 1", "batched 1", "batched 8"));
  EXPECT_THAT(target.batches, ElementsAre(1, 8));  // batch_max_batch_size follows
  const BenchmarkResult &single = (*results)[0], &one = (*results)[1], &eight = (*results)[2];
  EXPECT_EQ(single.mode, "single");
  EXPECT_EQ(single.total_tokens, 120U);
  EXPECT_EQ(single.num_requests, 6U);
  EXPECT_DOUBLE_EQ(single.speedup, 1);
  EXPECT_EQ(one.total_tokens, 120U);
  EXPECT_EQ(eight.num_requests, 8U);  // every place is used
  EXPECT_EQ(eight.total_tokens, 160U);
  EXPECT_GT(eight.speedup, 2.5);
  EXPECT_DOUBLE_EQ(eight.speedup, eight.tokens_per_second / single.tokens_per_second);
  EXPECT_DOUBLE_EQ(single.tokens_per_second, 500);
  EXPECT_DOUBLE_EQ(single.itl_p50_ms, 2);
  EXPECT_DOUBLE_EQ(eight.itl_p50_ms, 2);
  EXPECT_GE(eight.ttft_p50_ms, 2);
  EXPECT_GT(eight.decode_tokens_per_second, eight.tokens_per_second);
  EXPECT_TRUE(eight.outside_model_percent.has_value());
  EXPECT_FALSE(single.outside_model_percent.has_value());
}

TEST(Comparison, TheBaselineCanBeLeftOut) {
  Pace pace;
  FakeTarget target(pace);
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  const BenchOptions options{.concurrencies = {4}, .requests = 4, .rounds = 1, .single = false};
  const auto results = run_benchmark(target, requests(4, 5), options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_THAT(recorder.levels, ElementsAre("batched 4"));
  ASSERT_EQ(results->size(), 1U);
  EXPECT_EQ(results->front().num_requests, 4U);  // as many as there are places
  EXPECT_DOUBLE_EQ(results->front().speedup, 1);
}

// Steps of 2 ms take 20 ms more where they hold 100 tokens of a long prompt.
TEST(Comparison, LongPromptsInBetweenShowBetweenTokens) {
  Pace pace;
  FakeTarget target(pace);
  target.step_tokens = 104;
  target.prefill_time = 200;
  target.long_prompt = 1000;
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  BenchOptions options{.concurrencies = {4}, .requests = 4, .rounds = 1, .single = false};
  options.long_prompts = [](uint32_t number) {
    return made_up_tokens(made_up_workload(number, 1, 1000, 1)[0], kFakeVocab);
  };
  std::vector<BenchRequest> work;
  for (TokenId i = 0; i < 4; ++i) work.push_back({std::vector<TokenId>(20, i), 60});
  const auto results = run_benchmark(target, work, options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_THAT(recorder.levels, ElementsAre("batched 4", "disturbed 4"));
  EXPECT_THAT(target.batches, ElementsAre(4, 5));
  const BenchmarkResult &calm = (*results)[0], &disturbed = (*results)[1];
  EXPECT_EQ(calm.long_prompt_tokens, 0U);
  EXPECT_FALSE(calm.itl_growth.has_value());
  // The requests' own prompts are not between the tokens of the steady part.
  EXPECT_DOUBLE_EQ(calm.steady_itl_p99_ms, 2);
  // One after the other ran beside the 60 steps, ten steps each and a step or two between them;
  // nothing of them is in the others' figures.
  EXPECT_GE(disturbed.long_prompt_tokens, 4000U);
  EXPECT_LE(disturbed.long_prompt_tokens, 6000U);
  EXPECT_EQ(disturbed.total_tokens, 240U);
  EXPECT_EQ(disturbed.num_requests, 4U);
  EXPECT_EQ(disturbed.prompt_tokens, 80U);
  EXPECT_EQ(disturbed.prefix_hit_tokens, 0U);
  EXPECT_GT(disturbed.steady_itl_p99_ms, 20);
  ASSERT_TRUE(disturbed.itl_growth.has_value());
  EXPECT_DOUBLE_EQ(*disturbed.itl_growth, disturbed.steady_itl_p99_ms / calm.steady_itl_p99_ms);
}

TEST(Comparison, ALongPromptThatCannotFitIsTold) {
  Pace pace;
  FakeTarget target(pace);
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  BenchOptions options{.concurrencies = {2}, .requests = 2, .rounds = 1, .single = false};
  options.long_prompts = [](uint32_t) { return std::vector<TokenId>(5000, 1); };
  const auto results = run_benchmark(target, requests(2, 5), options, pace.clock, recorder, cancel);
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().code(), Code::kOutOfRange);
}

TEST(Comparison, ThePrefixCacheDoesNotFlatterUnlessAsked) {
  Pace pace;
  const std::atomic<bool> cancel{false};
  const BenchOptions options{.concurrencies = {16}, .requests = 64, .rounds = 1};
  for (const bool shared : {false, true}) {
    FakeTarget target(pace);
    Recorder recorder(pace);
    const auto results =
        run_benchmark(target, requests(64, 2, shared), options, pace.clock, recorder, cancel);
    ASSERT_TRUE(results.ok()) << results.message();
    EXPECT_EQ(results->back().prefix_hit_tokens > 0, shared);
  }
}

TEST(Comparison, PreemptionsAreCounted) {
  Pace pace;
  FakeTarget target(pace);
  target.pool_blocks = 24;  // the longest prompt fits, eight of them do not
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  std::vector<BenchRequest> work;
  for (TokenId i = 0; i < 8; ++i) work.push_back({std::vector<TokenId>(60, i), 80});
  const BenchOptions options{.concurrencies = {8}, .requests = 8, .rounds = 1};
  const auto results = run_benchmark(target, work, options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_GT(results->back().preemptions, 0U);
  EXPECT_EQ(results->back().total_tokens, 640U);
}

TEST(Comparison, AnInterruptedRunTellsWhatItHas) {
  Pace pace;
  std::atomic<bool> cancel{false};
  FakeTarget target(pace);
  Recorder recorder(pace);
  recorder.on_tokens = [&](uint64_t tokens) {
    if (cancel) pace.release();  // the requests are being ended
    if (recorder.levels.size() == 2 && tokens >= 12) cancel = true;
  };
  const BenchOptions options{.concurrencies = {4, 8, 16}, .requests = 4, .rounds = 1};
  const auto results =
      run_benchmark(target, requests(16, 30), options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  ASSERT_EQ(results->size(), 2U);
  EXPECT_FALSE((*results)[0].interrupted);
  EXPECT_TRUE((*results)[1].interrupted);
  EXPECT_GE((*results)[1].total_tokens, 12U);
  EXPECT_LT((*results)[1].total_tokens, 120U);
  EXPECT_EQ((*results)[1].failed_requests, 0U);
}

TEST(Comparison, TheMedianOfTheRoundsCounts) {
  Pace pace;
  FakeTarget target(pace);
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  const BenchOptions options{.concurrencies = {4}, .requests = 4, .rounds = 3};
  const auto results = run_benchmark(target, requests(4, 5), options, pace.clock, recorder, cancel);
  ASSERT_TRUE(results.ok()) << results.message();
  ASSERT_EQ(results->size(), 2U);
  ASSERT_EQ(recorder.results.size(), 6U);  // single and 4, three times in turn
  EXPECT_THAT(recorder.levels, ElementsAre("single 1", "batched 4", "single 1", "batched 4",
                                           "single 1", "batched 4"));
  std::vector<double> speeds;
  for (size_t i = 1; i < 6; i += 2) speeds.push_back(recorder.results[i].tokens_per_second);
  std::sort(speeds.begin(), speeds.end());
  EXPECT_DOUBLE_EQ((*results)[1].tokens_per_second, speeds[1]);
}

TEST(Comparison, ATargetThatFailsEndsIt) {
  Pace pace;
  FakeTarget target(pace);
  Recorder recorder(pace);
  const std::atomic<bool> cancel{false};
  const std::vector<BenchRequest> work(2, {{1, 2, 3}, 5000});  // beyond the context of 4096
  const BenchOptions options{.concurrencies = {2}, .requests = 2, .rounds = 1};
  target.most_alone = 3;
  const auto results = run_benchmark(target, work, options, pace.clock, recorder, cancel);
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().code(), Code::kOutOfRange);
}

TEST(Levels, AreWholeBatches) {
  EXPECT_EQ(requests_at(1, 20), 20U);
  EXPECT_EQ(requests_at(8, 20), 24U);
  EXPECT_EQ(requests_at(16, 20), 32U);
  EXPECT_EQ(requests_at(64, 20), 64U);
  EXPECT_EQ(requests_needed({}), 64U);
}

}  // namespace
}  // namespace skein::bench
