#include "bench/run_benchmark.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "bench/closed_loop.h"
#include "bench/machine.h"
#include "bench/statistics.h"

namespace skein::bench {
namespace {

constexpr uint32_t kWarmUpTokens = 4;
constexpr TimeUs kStopPatience = 60 * kUsPerSecond;

struct BenchRun {
  BenchTarget& target;
  std::span<const BenchRequest> requests;
  const Clock& clock;
  BenchObserver& observer;
  const std::atomic<bool>& cancel;

  bool cancelled() const { return cancel.load(std::memory_order_relaxed); }
};

uint64_t tokens_of(std::span<const BenchRequest> requests) {
  uint64_t tokens = 0;
  for (const BenchRequest& request : requests) tokens += request.max_tokens;
  return tokens;
}

// Touches every weight once, with a prompt that is none of those measured.
Status warm_up(const BenchRun& bench) {
  BenchRequest request = bench.requests.front();
  std::reverse(request.prompt.begin(), request.prompt.end());
  request.max_tokens = kWarmUpTokens;
  return bench.target
      .generate(
          request, [] {}, bench.cancel)
      .status();
}

Result<LoadRun> run_alone(const BenchRun& bench, std::span<const BenchRequest> requests) {
  LoadRun run;
  uint64_t tokens = 0;
  run.began = bench.clock.now();
  for (const BenchRequest& request : requests) {
    if (bench.cancelled()) break;
    RequestRecord record;
    record.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    record.sent = bench.clock.now();
    const auto on_token = [&] {
      record.arrivals.push_back(bench.clock.now());
      bench.observer.got_tokens(++tokens);
    };
    SKEIN_ASSIGN(record.cached_tokens, bench.target.generate(request, on_token, bench.cancel));
    record.ended = bench.clock.now();
    record.generated_tokens = static_cast<uint32_t>(record.arrivals.size());
    record.complete = record.generated_tokens == request.max_tokens;
    run.requests.push_back(std::move(record));
  }
  run.ended = bench.clock.now();
  run.interrupted = bench.cancelled();
  return run;
}

void add_reading(BenchmarkResult& result, const StretchMeter::Reading& reading) {
  result.steal_percent = reading.steal_percent;
  result.energy_joules = reading.energy_joules;
  if (reading.energy_joules && result.total_tokens > 0) {
    result.joules_per_token = *reading.energy_joules / static_cast<double>(result.total_tokens);
  }
}

Result<BenchmarkResult> measure_alone(const BenchRun& bench, uint32_t count) {
  const auto requests = bench.requests.first(count);
  bench.observer.begins("single", 1, tokens_of(requests));
  StretchMeter meter;
  SKEIN_ASSIGN(const LoadRun run, run_alone(bench, requests));
  BenchmarkResult result = summarize("single", 1, run);
  add_reading(result, meter.read());
  return result;
}

Result<BenchmarkResult> measure_batched(const BenchRun& bench, uint32_t concurrency,
                                        uint32_t count) {
  const auto requests = bench.requests.first(count);
  SKEIN_ASSIGN(const std::unique_ptr<InferenceService> service,
               bench.target.start(concurrency, requests));
  bench.observer.begins("batched", concurrency, tokens_of(requests));
  StretchMeter meter;
  const LoadRun run = run_closed_loop(
      *service, requests, concurrency, bench.clock,
      [&](uint64_t tokens) { bench.observer.got_tokens(tokens); }, bench.cancel);
  const StretchMeter::Reading reading = meter.read();
  const EngineSnapshot snapshot = service->snapshot();
  if (!service->stop(kStopPatience)) return internal_error("a step of the engine hangs");
  BenchmarkResult result = summarize("batched", concurrency, run);
  if (result.num_requests == 0) return first_failure(run);
  add_reading(result, reading);
  if (snapshot.loop_time_us > 0) {
    const auto loop = static_cast<double>(snapshot.loop_time_us);
    result.outside_model_percent =
        100 * (loop - static_cast<double>(snapshot.model_time_us)) / loop;
  }
  return result;
}

// Level 0 is the baseline.
Result<BenchmarkResult> measure(const BenchRun& bench, const BenchOptions& options, size_t level) {
  if (level == 0) return measure_alone(bench, options.requests);
  const uint32_t concurrency = options.concurrencies[level - 1];
  return measure_batched(bench, concurrency, requests_at(concurrency, options.requests));
}

// The rounds of one level to the one that counts.
BenchmarkResult median_of(const std::vector<BenchmarkResult>& rounds) {
  std::vector<double> speeds;
  for (const BenchmarkResult& round : rounds) speeds.push_back(round.tokens_per_second);
  return rounds[median_index(speeds)];
}

}  // namespace

uint32_t requests_at(uint32_t concurrency, uint32_t least) {
  return (std::max(least, concurrency) + concurrency - 1) / concurrency * concurrency;
}

uint32_t requests_needed(const BenchOptions& options) {
  uint32_t needed = options.requests;
  for (const uint32_t level : options.concurrencies) {
    needed = std::max(needed, requests_at(level, options.requests));
  }
  return needed;
}

Result<std::vector<BenchmarkResult>> run_benchmark(BenchTarget& target,
                                                   std::span<const BenchRequest> requests,
                                                   const BenchOptions& options, const Clock& clock,
                                                   BenchObserver& observer,
                                                   const std::atomic<bool>& cancel) {
  SKEIN_CHECK(requests.size() >= requests_needed(options), "{} requests, {} are needed",
              requests.size(), requests_needed(options));
  const BenchRun bench{target, requests, clock, observer, cancel};
  SKEIN_TRY(warm_up(bench));
  const size_t levels = options.concurrencies.size() + 1;
  // Round by round, so that a bad minute of the machine hits every level alike.
  std::vector<std::vector<BenchmarkResult>> measured(levels);
  for (uint32_t round = 0; round < options.rounds; ++round) {
    for (size_t level = options.single ? 0 : 1; level < levels && !bench.cancelled(); ++level) {
      SKEIN_ASSIGN(BenchmarkResult result, measure(bench, options, level));
      observer.ended(result);
      measured[level].push_back(std::move(result));
    }
  }
  std::vector<BenchmarkResult> results;
  for (const std::vector<BenchmarkResult>& level : measured) {
    if (level.empty()) continue;
    BenchmarkResult result = median_of(level);
    const double first =
        results.empty() ? result.tokens_per_second : results.front().tokens_per_second;
    result.speedup = first > 0 ? result.tokens_per_second / first : 0;
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace skein::bench
