#include "bench/run_benchmark.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "bench/closed_loop.h"
#include "bench/machine.h"
#include "bench/statistics.h"

namespace skein::bench {
namespace {

constexpr const char *kSingle = "single", *kBatched = "batched", *kDisturbed = "disturbed";
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

// One line of the results.
struct Level {
  std::string mode;
  uint32_t concurrency;
  uint32_t requests;
  LongPrompts long_prompts;
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

Result<BenchmarkResult> measure_alone(const BenchRun& bench, const Level& level) {
  const auto requests = bench.requests.first(level.requests);
  bench.observer.begins(level.mode.c_str(), 1, tokens_of(requests));
  StretchMeter meter;
  SKEIN_ASSIGN(const LoadRun run, run_alone(bench, requests));
  BenchmarkResult result = summarize(level.mode, 1, run);
  add_reading(result, meter.read());
  return result;
}

// A place beside the others, for one long prompt at a time.
Result<InferenceService::Owned<InferenceService>> start_disturbed(
    const BenchRun& bench, std::span<const BenchRequest> requests, const Level& level) {
  std::vector<BenchRequest> all(requests.begin(), requests.end());
  all.push_back({level.long_prompts(0), 1});
  return bench.target.start(level.concurrency + 1, all);
}

Result<BenchmarkResult> measure_batched(const BenchRun& bench, const Level& level) {
  const auto requests = bench.requests.first(level.requests);
  SKEIN_ASSIGN(const InferenceService::Owned<InferenceService> service,
               level.long_prompts ? start_disturbed(bench, requests, level)
                                  : bench.target.start(level.concurrency, requests));
  bench.observer.begins(level.mode.c_str(), level.concurrency, tokens_of(requests));
  StretchMeter meter;
  const LoadRun run = run_closed_loop(
      *service, requests, level.concurrency, bench.clock,
      [&](uint64_t tokens) { bench.observer.got_tokens(tokens); }, bench.cancel,
      level.long_prompts);
  const StretchMeter::Reading reading = meter.read();
  const EngineSnapshot snapshot = service->snapshot();
  if (!service->stop(kStopPatience)) return internal_error("a step of the engine hangs");
  SKEIN_TRY(run.long_prompts);
  BenchmarkResult result = summarize(level.mode, level.concurrency, run);
  if (result.num_requests == 0) return first_failure(run);
  add_reading(result, reading);
  if (snapshot.loop_time_us > 0) {
    const auto loop = static_cast<double>(snapshot.loop_time_us);
    result.outside_model_percent =
        100 * (loop - static_cast<double>(snapshot.model_time_us)) / loop;
  }
  return result;
}

Result<BenchmarkResult> measure(const BenchRun& bench, const Level& level) {
  return level.mode == kSingle ? measure_alone(bench, level) : measure_batched(bench, level);
}

std::vector<Level> levels_of(const BenchOptions& options) {
  std::vector<Level> levels;
  if (options.single) levels.push_back({kSingle, 1, options.requests, {}});
  for (const uint32_t concurrency : options.concurrencies) {
    const uint32_t count = requests_at(concurrency, options.requests);
    levels.push_back({kBatched, concurrency, count, {}});
    if (options.long_prompts) {
      levels.push_back({kDisturbed, concurrency, count, options.long_prompts});
    }
  }
  return levels;
}

// The rounds of one level to the one that counts.
BenchmarkResult median_of(const std::vector<BenchmarkResult>& rounds) {
  std::vector<double> speeds;
  speeds.reserve(rounds.size());
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
  const std::vector<Level> levels = levels_of(options);
  // Round by round, so that a bad minute of the machine hits every level alike.
  std::vector<std::vector<BenchmarkResult>> measured(levels.size());
  for (uint32_t round = 0; round < options.rounds; ++round) {
    for (size_t level = 0; level < levels.size() && !bench.cancelled(); ++level) {
      SKEIN_ASSIGN(BenchmarkResult result, measure(bench, levels[level]));
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
    // A disturbed level follows the same one undisturbed.
    if (result.mode == kDisturbed && results.back().steady_itl_p99_ms > 0) {
      result.itl_growth = result.steady_itl_p99_ms / results.back().steady_itl_p99_ms;
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace skein::bench
