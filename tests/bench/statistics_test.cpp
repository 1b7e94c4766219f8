#include <gtest/gtest.h>

#include "bench/result.h"
#include "bench/roofline.h"
#include "format/test_folder.h"

namespace skein::bench {
namespace {

using skein::testing::TestFolder;

// Expected values are those of numpy.percentile(values, percent).
TEST(Statistics, PercentilesAreNumPys) {
  const std::vector<double> ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_DOUBLE_EQ(percentile(ten, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(ten, 50), 5.5);
  EXPECT_DOUBLE_EQ(percentile(ten, 90), 9.1);
  EXPECT_DOUBLE_EQ(percentile(ten, 99), 9.91);
  EXPECT_DOUBLE_EQ(percentile(ten, 100), 10);
  const std::vector<double> odd = {12.5, 13.25, 40, 41, 1000};
  EXPECT_DOUBLE_EQ(percentile(odd, 50), 40);
  EXPECT_DOUBLE_EQ(percentile(odd, 99), 961.64);
  EXPECT_DOUBLE_EQ(percentile(odd, 37.5), 26.625);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{7}, 99), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 99), 0);
}

TEST(Statistics, ASpreadDoesNotDependOnTheOrder) {
  const Spread spread = spread_of({40, 1000, 12.5, 41, 13.25});
  EXPECT_EQ(spread.count, 5U);
  EXPECT_DOUBLE_EQ(spread.mean, 221.35);
  EXPECT_DOUBLE_EQ(spread.p50, 40);
  EXPECT_DOUBLE_EQ(spread.p99, 961.64);
  EXPECT_DOUBLE_EQ(spread.max, 1000);
  EXPECT_EQ(spread_of({}).count, 0U);
}

TEST(Statistics, TheMedianIsOneOfTheValues) {
  EXPECT_EQ(median_index(std::vector<double>{5}), 0U);
  EXPECT_EQ(median_index(std::vector<double>{9, 1, 5}), 2U);
  EXPECT_EQ(median_index(std::vector<double>{9, 1, 5, 4}), 3U);
}

TEST(Statistics, RatesAreOverSeconds) {
  EXPECT_DOUBLE_EQ(per_second(50, 2 * kUsPerSecond), 25);
  EXPECT_DOUBLE_EQ(per_second(50, 0), 0);
}

TEST(Statistics, StretchesOfTimeUnite) {
  const auto whole = united({{5, 8}, {0, 2}, {2, 3}, {6, 7}});
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[0].to, 3);
  EXPECT_EQ(whole[1].from, 5);
  EXPECT_EQ(whole[1].to, 8);
}

RequestRecord record(TimeUs sent, std::vector<TimeUs> arrivals) {
  RequestRecord out;
  out.sent = sent;
  out.ended = arrivals.back();
  out.generated_tokens = static_cast<uint32_t>(arrivals.size());
  out.arrivals = std::move(arrivals);
  out.prompt_tokens = 10;
  out.complete = true;
  return out;
}

// Two requests at once: both wait 100 ms for their first token, then get four more, 50 ms apart.
TEST(Results, FollowFromWhatClientsSaw) {
  LoadRun run;
  run.began = 0;
  run.ended = 300'000;
  run.requests = {record(0, {100'000, 150'000, 200'000, 250'000, 300'000}),
                  record(0, {100'000, 150'000, 200'000, 250'000, 300'000})};
  const BenchmarkResult result = summarize("batched", 2, run);
  EXPECT_EQ(result.num_requests, 2U);
  EXPECT_EQ(result.total_tokens, 10U);
  EXPECT_EQ(result.prompt_tokens, 20U);
  EXPECT_DOUBLE_EQ(result.total_time_seconds, 0.3);
  EXPECT_DOUBLE_EQ(result.tokens_per_second, 10 / 0.3);
  EXPECT_DOUBLE_EQ(result.prefill_tokens_per_second, 20 / 0.1);
  EXPECT_DOUBLE_EQ(result.decode_tokens_per_second, 8 / 0.2);
  EXPECT_DOUBLE_EQ(result.avg_latency_ms, 300);
  EXPECT_DOUBLE_EQ(result.p99_latency_ms, 300);
  EXPECT_DOUBLE_EQ(result.ttft_p50_ms, 100);
  EXPECT_DOUBLE_EQ(result.itl_p50_ms, 50);
  EXPECT_DOUBLE_EQ(result.mean_context_tokens, 12.5);
  EXPECT_TRUE(result.classes.empty());
}

// What arrives while another one waits for its first token is not the speed of decoding.
TEST(Results, DecodingIsMeasuredWhileNobodyPrefills) {
  LoadRun run;
  run.began = 0;
  run.ended = 400'000;
  run.requests = {record(0, {100'000, 150'000, 200'000, 300'000, 400'000}),
                  record(150'000, {250'000, 300'000, 350'000, 400'000})};
  // Waiting: 0..100 and 150..250 ms. Decoding: 200 ms, in which arrive 150 (as the wait begins),
  // 300 and 400 of the first, 300, 350 and 400 of the second.
  EXPECT_DOUBLE_EQ(summarize("batched", 2, run).decode_tokens_per_second, 6 / 0.2);
}

// Once a place stays empty the batch is smaller than what the level is about.
TEST(Results, DecodingIsMeasuredWhileAllPlacesAreTaken) {
  LoadRun run;
  run.began = 0;
  run.ended = 500'000;
  run.requests = {record(0, {50'000, 100'000}), record(0, {50'000, 150'000, 250'000, 300'000}),
                  record(100'000, {150'000, 250'010, 300'010, 400'000, 500'000})};
  // Waiting: 0..50 and 100..150 ms. The second one to come ends at 300 and nobody follows, though
  // a third goes on; its token of the same step comes 10 us later. Decoding: 50..100 and 150..300.
  EXPECT_DOUBLE_EQ(summarize("batched", 2, run).decode_tokens_per_second, 5 / 0.2);
  // Nobody has answered when the first one is done: there is no such time.
  run.requests = {record(0, {50'000, 100'000}), record(0, {200'000, 500'000})};
  EXPECT_DOUBLE_EQ(summarize("batched", 2, run).decode_tokens_per_second, 0);
}

TEST(Results, SteadyTimesAreThoseBesideNobodysFirstToken) {
  LoadRun run;
  run.began = 0;
  run.ended = 400'000;
  run.requests = {record(0, {10'000, 50'000, 110'000, 120'000, 400'000}),
                  record(0, {100'000, 110'000, 120'000})};
  // 40 ms while the other waits, 60 in the course of which it gets its first token, 280 when it is
  // gone: only the steps of 10 ms count.
  const BenchmarkResult result = summarize("batched", 2, run);
  EXPECT_DOUBLE_EQ(result.steady_itl_p99_ms, 10);
  EXPECT_GT(result.itl_p99_ms, 200);
}

TEST(Results, PrefillIsWhatTheCacheDidNotHaveWhileSomebodyWaited) {
  LoadRun run;
  run.began = 0;
  run.ended = 400'000;
  // Alone, one after the other: 100 and 50 ms of waiting.
  run.requests = {record(0, {100'000, 200'000}), record(200'000, {250'000, 400'000})};
  run.requests[1].cached_tokens = 4;
  EXPECT_DOUBLE_EQ(summarize("single", 1, run).prefill_tokens_per_second, 16 / 0.15);
  // Together: whoever waits while another one does makes it no longer.
  run.requests[1] = record(50'000, {150'000, 400'000});
  EXPECT_DOUBLE_EQ(summarize("batched", 2, run).prefill_tokens_per_second, 20 / 0.15);
  // One that never got a token has waited, but nobody knows how much of its prompt was computed.
  run.requests[1].arrivals.clear();
  run.requests[1].ended = 250'000;
  EXPECT_DOUBLE_EQ(summarize("batched", 2, run).prefill_tokens_per_second, 10 / 0.25);
  EXPECT_DOUBLE_EQ(summarize("serve", 0, run).prefill_tokens_per_second, 0);  // an open loop
}

// Servers count tokens by themselves; events are how they come.
TEST(Results, TokensOfAnEventAreItsShare) {
  LoadRun run;
  run.began = 0;
  run.ended = 300'000;
  run.requests = {record(0, {100'000, 200'000, 300'000})};
  run.requests[0].generated_tokens = 5;
  EXPECT_DOUBLE_EQ(summarize("serve", 1, run).decode_tokens_per_second, 4 / 0.2);
  EXPECT_EQ(summarize("serve", 1, run).total_tokens, 5U);
}

TEST(Results, FailuresAndUnfinishedRequestsAreTold) {
  LoadRun run;
  run.began = 0;
  run.ended = 300'000;
  run.interrupted = true;
  run.requests = {record(0, {100'000, 300'000}), record(0, {200'000}), record(0, {50'000})};
  run.requests[1].status = unavailable("gone");
  run.requests[2].complete = false;
  const BenchmarkResult result = summarize("serve", 4, run);
  EXPECT_EQ(result.num_requests, 2U);
  EXPECT_EQ(result.failed_requests, 1U);
  EXPECT_EQ(result.total_tokens, 3U);
  EXPECT_DOUBLE_EQ(result.avg_latency_ms, 300);  // of the one that came to its end
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(first_failure(run).message(), "gone");
}

TEST(Results, ClassesAreToldApart) {
  LoadRun run;
  run.began = 0;
  run.ended = 300'000;
  run.requests = {record(0, {100'000}), record(0, {300'000})};
  run.requests[0].priority = Priority::HIGH;
  run.requests[1].priority = Priority::LOW;
  const BenchmarkResult result = summarize("serve", 2, run);
  ASSERT_EQ(result.classes.size(), 2U);
  EXPECT_EQ(result.classes[0].name, "high");
  EXPECT_DOUBLE_EQ(result.classes[0].ttft_p50_ms, 100);
  EXPECT_DOUBLE_EQ(result.classes[1].ttft_p50_ms, 300);
}

TEST(Machine, IsReadFromItsFiles) {
  const TestFolder folder;
  folder.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Abacus 9 @ 1 Hz\n");
  folder.write("proc/meminfo", "MemTotal:       24650788 kB\nMemFree: 1 kB\n");
  folder.write("sys/devices/system/cpu/cpu0/cache/index3/size", "49152K\n");
  const MachineFacts facts = read_machine(folder.path());
  EXPECT_EQ(facts.cpu, "Abacus 9 @ 1 Hz");
  EXPECT_EQ(facts.memory_bytes, 24650788ULL << 10);
  EXPECT_EQ(facts.l3_bytes, 48ULL << 20);
  EXPECT_GE(facts.cpus, 1U);
}

TEST(Machine, StealIsAShareOfAllTicks) {
  const TestFolder folder;
  folder.write("proc/stat", "cpu  100 0 100 700 50 0 0 50 0 0\ncpu0 1 2 3\n");
  StretchMeter meter(folder.path());
  folder.write("proc/stat", "cpu  150 0 120 720 50 0 0 60 5 0\n");
  EXPECT_DOUBLE_EQ(*meter.read().steal_percent, 10);
  EXPECT_FALSE(parse_cpu_ticks("cpu  1 2 3\n").has_value());
  EXPECT_FALSE(parse_cpu_ticks("").has_value());
}

TEST(Machine, EnergyIsAbsentWhereItCannotBeRead) {
  const TestFolder folder;
  StretchMeter meter(folder.path());
  EXPECT_FALSE(meter.read().energy_joules.has_value());
}

TEST(Machine, EnergyIsThatOfThePackagesAndWraps) {
  const TestFolder folder;
  const std::string rapl = "sys/class/powercap/intel-rapl:0/",
                    part = "sys/class/powercap/intel-rapl:0:0/";
  folder.write(rapl + "energy_uj", "9000000\n");
  folder.write(rapl + "max_energy_range_uj", "10000000\n");
  folder.write(part + "energy_uj", "1\n");
  folder.write(part + "max_energy_range_uj", "10\n");
  EnergyMeter meter(folder.path());
  ASSERT_TRUE(meter.readable());
  folder.write(rapl + "energy_uj", "9500000\n");
  EXPECT_DOUBLE_EQ(*meter.joules(), 0.5);
  folder.write(rapl + "energy_uj", "500000\n");
  EXPECT_DOUBLE_EQ(*meter.joules(), 1);
}

TEST(Roofline, AStepIsAsSlowAsTheSlowerOfReadingAndComputing) {
  const ModelCosts costs{.weight_bytes = 100'000'000,
                         .kv_bytes_per_token = 10'000,
                         .operations_per_row = 200'000'000,
                         .operations_per_pair = 1000};
  uint64_t asked = 0;
  const auto bandwidth = [&](uint64_t bytes) {
    asked = bytes;
    return 20.0;
  };
  const StepLimit one = step_limit(costs, 1, 100, 1, bandwidth);
  EXPECT_EQ(asked, 101'000'000U);  // the weights and a hundred tokens
  EXPECT_DOUBLE_EQ(one.memory_us, 5050);
  EXPECT_DOUBLE_EQ(one.compute_us, 200.1);
  EXPECT_DOUBLE_EQ(one.tokens_per_second, 1e6 / 5050);
  const StepLimit many = step_limit(costs, 64, 100, 1, bandwidth);
  EXPECT_EQ(many.bytes, 164'000'000U);
  EXPECT_DOUBLE_EQ(many.compute_us, 64 * 200.1);
  EXPECT_DOUBLE_EQ(many.tokens_per_second, 64 * 1e6 / (64 * 200.1));
}

TEST(Roofline, MemoryIsRead) {
  ComputePool pool(1);
  BandwidthProbe probe(pool);
  EXPECT_GT(probe.gb_per_second(8 << 20), 0.1);
}

}  // namespace
}  // namespace skein::bench
