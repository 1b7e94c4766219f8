#include "server/observe/metrics.h"

#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/answer.h"
#include "engine/golden_model.h"
#include "engine/losable_device.h"
#include "engine/manager/load_served_model.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The page as "name{labels}" -> value.
std::map<std::string, double> samples(const std::string& page) {
  std::map<std::string, double> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    out[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return out;
}

FinishedRequest finished(const std::string& model, FinishReason reason = FinishReason::kStop) {
  FinishedRequest request;
  request.id = "chatcmpl-1";
  request.model = model;
  request.reason = reason;
  request.prompt_tokens = 10;
  request.cached_tokens = 4;
  request.output_tokens = 7;
  request.queue_us = 2'000;
  request.prefill_us = 30'000;
  request.decode_us = 500'000;
  request.first_token_us = 32'000;
  request.total_us = 532'000;
  return request;
}

class MetricsTest : public ::testing::Test {
 protected:
  // No model is ever loaded here.
  SchedulerManager::Loader no_loader() {
    return [](const ModelConfig&, const SchedulerManager::MakeRoom&) -> Result<ServedModelParts> {
      return not_found("no models here");
    };
  }
  double value(const std::string& sample) {
    const auto all = samples(metrics_.page(models_));
    const auto it = all.find(sample);
    return it == all.end() ? -1 : it->second;
  }

  ManualClock clock_{1'000 * kUsPerSecond};
  SchedulerManager models_{{}, no_loader(), clock_};
  Metrics metrics_{clock_};
};

TEST_F(MetricsTest, EndsAreCountedByReasonWithTokensAndTimes) {
  metrics_.on_finished(finished("m"));
  metrics_.on_finished(finished("m", FinishReason::kLength));
  metrics_.on_finished(finished("m", FinishReason::kClient));
  metrics_.on_finished(finished("m", FinishReason::kError));
  EXPECT_EQ(value(R"(vllm:request_success_total{finished_reason="stop",model_name="m"})"), 1);
  EXPECT_EQ(value(R"(vllm:request_success_total{finished_reason="length",model_name="m"})"), 1);
  EXPECT_EQ(value(R"(vllm:request_success_total{finished_reason="abort",model_name="m"})"), 1);
  EXPECT_EQ(value(R"(skein:requests_ended_total{model_name="m",reason="error"})"), 1);
  EXPECT_EQ(value(R"(vllm:prompt_tokens_total{model_name="m"})"), 40);
  EXPECT_EQ(value(R"(vllm:generation_tokens_total{model_name="m"})"), 28);
  EXPECT_EQ(value(R"(skein:cached_prompt_tokens_total{model_name="m"})"), 16);
  EXPECT_EQ(value(R"(vllm:time_to_first_token_seconds_count{model_name="m"})"), 4);
  EXPECT_NEAR(value(R"(vllm:time_to_first_token_seconds_sum{model_name="m"})"), 0.128, 1e-9);
  EXPECT_EQ(value(R"(vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.02"})"), 0);
  EXPECT_EQ(value(R"(vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.04"})"), 4);
  EXPECT_EQ(value(R"(vllm:request_generation_tokens_bucket{model_name="m",le="10"})"), 4);
}

TEST_F(MetricsTest, RequestThatGaveNothingHasNoTokensAndNoFirstToken) {
  FinishedRequest request = finished("m", FinishReason::kTimedOut);
  request.first_token_us = 0;
  request.output_tokens = 0;
  metrics_.on_finished(request);
  EXPECT_EQ(value(R"(vllm:prompt_tokens_total{model_name="m"})"), 0);
  EXPECT_EQ(value(R"(vllm:time_to_first_token_seconds_count{model_name="m"})"), 0);
  EXPECT_EQ(value(R"(vllm:request_queue_time_seconds_count{model_name="m"})"), 1);
  request.choices = 0;  // no engine ever had it
  metrics_.on_finished(request);
  EXPECT_EQ(value(R"(vllm:request_queue_time_seconds_count{model_name="m"})"), 1);
  EXPECT_EQ(value(R"(skein:requests_ended_total{model_name="m",reason="timed_out"})"), 2);
}

TEST_F(MetricsTest, TokensThatComeTogetherShareTheirTime) {
  metrics_.on_tokens("m", 80'000, 4);
  metrics_.on_tokens("m", 3'000, 1);
  metrics_.on_tokens("m", 1, 0);
  EXPECT_EQ(value(R"(vllm:inter_token_latency_seconds_count{model_name="m"})"), 5);
  EXPECT_NEAR(value(R"(vllm:inter_token_latency_seconds_sum{model_name="m"})"), 0.083, 1e-9);
  EXPECT_EQ(value(R"(vllm:inter_token_latency_seconds_bucket{model_name="m",le="0.01"})"), 1);
}

TEST_F(MetricsTest, RejectionsAreCountedByReason) {
  metrics_.on_rejected("m", Rejection::kQueueFull);
  metrics_.on_rejected("m", Rejection::kQueueFull);
  metrics_.on_rejected("m", Rejection::kDraining);
  EXPECT_EQ(value(R"(skein:rejected_requests_total{model_name="m",reason="queue_full"})"), 2);
  EXPECT_EQ(value(R"(skein:rejected_requests_total{model_name="m",reason="draining"})"), 1);
  EXPECT_EQ(value(R"(skein:rejected_requests_total{model_name="m",reason="rate_limit"})"), 0);
}

TEST_F(MetricsTest, LabelsAreBoundedAndEscaped) {
  for (int i = 0; i < 1000; ++i) metrics_.on_rejected(fmt::format("m{}", i), Rejection::kTooLarge);
  const auto all = samples(metrics_.page(models_));
  size_t names = 0;
  for (const auto& [sample, value] : all) names += sample.starts_with("vllm:prompt_tokens_total{");
  EXPECT_EQ(names, 257U);
  EXPECT_EQ(all.at(R"(skein:rejected_requests_total{model_name="other",reason="too_large"})"), 744);

  Metrics odd(clock_);
  odd.on_rejected("a\"b\\c\nd", Rejection::kTooLarge);
  EXPECT_THAT(odd.page(models_), HasSubstr(R"(model_name="a\"b\\c\nd")"));
}

TEST_F(MetricsTest, RetryAfterFollowsHowFastRequestsEnd) {
  EXPECT_EQ(metrics_.retry_after_s("m", 100), 5U);  // nothing was measured
  // One request of 4 s: a second one takes as long.
  FinishedRequest slow = finished("m");
  slow.prefill_us = 1 * kUsPerSecond;
  slow.decode_us = 3 * kUsPerSecond;
  metrics_.on_finished(slow);
  EXPECT_EQ(metrics_.retry_after_s("m", 1), 4U);
  // Ten a second for ten seconds.
  for (int i = 0; i < 100; ++i) {
    clock_.advance(kUsPerSecond / 10);
    metrics_.on_finished(finished("n"));
  }
  EXPECT_EQ(metrics_.retry_after_s("n", 1), 1U);
  EXPECT_NEAR(static_cast<double>(metrics_.retry_after_s("n", 200)), 20, 2);
  EXPECT_EQ(metrics_.retry_after_s("n", 1'000'000), 60U);
  // What never ran says nothing about how fast requests are served.
  FinishedRequest refused = finished("o", FinishReason::kError);
  refused.first_token_us = 0;
  metrics_.on_finished(refused);
  EXPECT_EQ(metrics_.retry_after_s("o", 10), 5U);
  clock_.advance(120 * kUsPerSecond);
  EXPECT_EQ(metrics_.retry_after_s("n", 10), 5U);  // too long ago
}

TEST_F(MetricsTest, LogLineIsJsonWithoutText) {
  FinishedRequest request = finished("m");
  request.request_id = "x\"\n\xff";
  request.start_priority_milli = -250;
  const std::string line = log_line(request);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["class"], "normal");
  EXPECT_EQ(json["start_priority"], -0.25);
  EXPECT_EQ(json["cached_tokens"], 4);
  EXPECT_EQ(json["total_ms"], 532);
}

TEST(DoublingBucketsTest, BoundsAreInclusive) {
  DoublingBuckets buckets{.first = 2};
  for (const uint64_t value : {0, 1, 4, 5, 8, 9}) buckets.add(value);
  buckets.add(UINT64_MAX);
  EXPECT_EQ(buckets.counts[0], 3U);
  EXPECT_EQ(buckets.counts[1], 2U);
  EXPECT_EQ(buckets.counts[2], 1U);
  EXPECT_EQ(buckets.counts[DoublingBuckets::kCount - 1], 1U);
}

// Real engines: what they count, and that unloading loses nothing.
class EngineMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServingOptions serving;
    serving.engine.scheduler.pool_blocks = 64;
    serving.engine.scheduler.max_batch = 8;
    models_ = std::make_unique<SchedulerManager>(
        SchedulerManager::Options{.memory_bytes = uint64_t{4} << 30},
        make_model_loader(serving, pool_, clock_), clock_);
    ASSERT_TRUE(models_->add({.id = "tiny", .path = golden_model_path()}).ok());
    ASSERT_TRUE(models_->add({.id = "never", .path = golden_model_path()}).ok());
  }

  void generate(uint32_t prompt, uint32_t tokens) {
    ModelLease lease = models_->acquire("tiny").value();
    GenerationRequest wanted;
    for (uint32_t i = 0; i < prompt; ++i) wanted.prompt.push_back(static_cast<TokenId>(i % 200));
    wanted.max_tokens = tokens;
    RequestHandle handle = lease->submit(std::move(wanted), {}).value();
    StreamChunk chunk;
    while (handle.stream().wait(chunk, 60 * kUsPerSecond) && !chunk.end) {
    }
    ASSERT_TRUE(chunk.end);
  }

  SystemClock clock_;
  ComputePool pool_{2};
  std::unique_ptr<SchedulerManager> models_;
  Metrics metrics_{clock_};
};

TEST_F(EngineMetricsTest, GaugesAndCountsOfALoadedModel) {
  EXPECT_THAT(metrics_.page(*models_), Not(HasSubstr("model_name")));
  generate(70, 3);
  generate(70, 3);
  const auto page = samples(metrics_.page(*models_));
  EXPECT_EQ(
      page.at(R"(vllm:cache_config_info{model_name="tiny",block_size="32",num_gpu_blocks="64"})"),
      1);
  EXPECT_EQ(page.at(R"(vllm:num_requests_running{model_name="tiny"})"), 0);
  EXPECT_EQ(page.at(R"(vllm:num_requests_waiting{model_name="tiny"})"), 0);
  EXPECT_EQ(page.at(R"(vllm:kv_cache_usage_perc{model_name="tiny"})"), 0);
  EXPECT_EQ(page.at(R"(vllm:prefix_cache_hits_total{model_name="tiny"})"), 64);
  EXPECT_GE(page.at(R"(vllm:prefix_cache_queries_total{model_name="tiny"})"), 128);
  EXPECT_EQ(page.at(R"(skein:queue_age_seconds{model_name="tiny",class="low"})"), 0);
  const double steps = page.at(R"(skein:step_time_seconds_count{model_name="tiny"})");
  EXPECT_EQ(page.at(R"(vllm:iteration_tokens_total_count{model_name="tiny"})"), steps);
  EXPECT_EQ(page.at(R"(skein:step_rows_bucket{model_name="tiny",le="1"})"), steps);
  EXPECT_EQ(page.at(R"(vllm:iteration_tokens_total_sum{model_name="tiny"})"),
            page.at(R"(skein:computed_tokens_total{model_name="tiny"})"));
  EXPECT_GT(page.at(R"(skein:step_time_seconds_sum{model_name="tiny"})"), 0);
  EXPECT_EQ(page.at(R"(skein:model_loads_total)"), 1);
  EXPECT_THAT(metrics_.page(*models_), Not(HasSubstr("never")));
}

TEST_F(EngineMetricsTest, CountersNeverGoBackWhenAModelLeavesAndComesAgain) {
  std::map<std::string, double> before;
  std::atomic<bool> done{false};
  // Someone scrapes all the time, also in the middle of an unload.
  std::thread scraper([&] {
    while (!done) {
      const auto now = samples(metrics_.page(*models_));
      for (const auto& [sample, value] : before) {
        if (sample.find("_total") == std::string::npos) continue;
        const auto it = now.find(sample);
        ASSERT_TRUE(it != now.end()) << sample;
        ASSERT_GE(it->second, value) << sample;
      }
      before = now;
    }
  });
  for (int i = 0; i < 5; ++i) {
    generate(40, 4);
    while (!models_->unload("tiny").ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  done = true;
  scraper.join();
  const auto page = samples(metrics_.page(*models_));
  EXPECT_EQ(page.at(R"(skein:step_rows_sum{model_name="tiny"})"),
            page.at(R"(skein:step_rows_count{model_name="tiny"})"));
  EXPECT_EQ(page.at(R"(skein:computed_tokens_total{model_name="tiny"})"), 5 * 43);
  EXPECT_EQ(page.at(R"(skein:model_loads_total)"), 5);
}

// A device is there while models are, or were, on it; what they computed counts when they are gone.
TEST(DeviceMetrics, AreThoseOfTheDeviceThatModelsAreOn) {
  const SystemClock clock;
  ComputePool pool(1);
  const auto device = std::make_shared<testing::LosableDevice>();
  ServingOptions serving;
  serving.engine.scheduler.pool_blocks = 16;
  serving.model.backend_maker = testing::LosableBackend::maker(device);
  SchedulerManager models({.memory_bytes = uint64_t{1} << 30},
                          make_model_loader(serving, pool, clock), clock);
  Metrics metrics(clock);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(models.add({.id = id, .path = golden_model_path()}).ok());
    ModelLease lease = models.acquire(id).value();
    GenerationRequest request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 4;
    request.sampling.ignore_eos = true;
    RequestHandle handle = lease->submit(std::move(request), {}).value();
    EXPECT_EQ(read(handle).tokens.size(), 4U);
  }
  const auto value = [&](const std::string& name, const std::string& more = "") {
    const std::string labels = R"({device="fake:0",name="A device of tests")" + more + "}";
    const auto all = samples(metrics.page(models));
    const auto it = all.find(name + labels);
    return it == all.end() ? -1 : it->second;
  };
  constexpr auto kTotal = static_cast<double>(testing::LosableDevice::kTotal);
  EXPECT_EQ(value("skein:device_memory_bytes", R"(,kind="total")"), kTotal);
  EXPECT_EQ(value("skein:device_memory_bytes", R"(,kind="used")"), 2000);
  EXPECT_EQ(value("skein:device_memory_bytes", R"(,kind="free")"), kTotal - 2000);
  EXPECT_EQ(value("skein:device_steps_total"), 8);
  EXPECT_GT(value("skein:device_busy_seconds_total"), 0);
  EXPECT_EQ(value("skein:device_up"), 1);
  device->lose();
  EXPECT_EQ(value("skein:device_up"), 0);
  EXPECT_EQ(value("skein:device_lost_total"), 1);
  ASSERT_TRUE(models.unload("a").ok());
  EXPECT_EQ(value("skein:device_steps_total"), 8);
  EXPECT_EQ(value("skein:device_memory_bytes", R"(,kind="used")"), 1000);
}

}  // namespace
}  // namespace skein
