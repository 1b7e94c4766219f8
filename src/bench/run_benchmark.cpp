#include "bench/run_benchmark.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "bench/result.h"
#include "bench/roofline.h"

namespace skein::bench {
namespace {

constexpr std::chrono::milliseconds kLookForCancel{50};

// Streams that have something, in the order in which they said so. Shared with the callbacks, which
// may come from any thread.
class ReadyList {
 public:
  void add(size_t request) {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(request);
      if (ready_.size() > 1) return;  // whoever waits has been told
    }
    changed_.notify_one();
  }
  // Replaces what is in `out`; waits for something, but not for long.
  void take(std::vector<size_t>& out) {
    out.clear();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookForCancel, [this] { return !ready_.empty(); });
    std::swap(out, ready_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> ready_;
};

// A closed loop over a service: so many requests in flight at any moment, until all are done.
// Requests are greedy and run past stop tokens. The long prompts end with the requests.
class ClosedLoop {
 public:
  ClosedLoop(InferenceService& service, std::span<const BenchRequest> requests,
             uint32_t concurrency, const Clock& clock, const LongPrompts& long_prompts)
      : service_(service),
        requests_(requests),
        concurrency_(concurrency),
        clock_(clock),
        long_prompts_(long_prompts),
        handles_(requests.size()) {
    run_.requests.resize(requests.size());
  }

  // `on_tokens` gets the number so far, on the calling thread. After `cancel` became true what runs
  // is cancelled.
  LoadRun run(const std::function<void(uint64_t)>& on_tokens, const std::atomic<bool>& cancel) {
    run_.began = clock_.now();
    fill();
    if (long_prompts_) send_long();
    std::vector<size_t> ready;
    while (live_ > 0) {
      ready_->take(ready);
      if (cancel.load(std::memory_order_relaxed) && !run_.interrupted) stop_all();
      for (const size_t i : ready) receive(i);
      if (!ready.empty()) on_tokens(tokens_);
    }
    run_.ended = clock_.now();
    if (long_prompts_) end_long();
    run_.requests.resize(next_);  // the others were never sent
    return std::move(run_);
  }

 private:
  // A refused request leaves its place to the next one.
  void fill() {
    while (live_ < concurrency_ && next_ < requests_.size() && !run_.interrupted) send();
  }

  void send() {
    const size_t i = next_++;
    GenerationRequest request;
    request.prompt = requests_[i].prompt;
    request.max_tokens = requests_[i].max_tokens;
    request.sampling.temperature = requests_[i].temperature;
    request.sampling.seed = i;
    request.sampling.ignore_eos = true;
    RequestRecord& record = run_.requests[i];
    record.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    record.sent = record.ended = clock_.now();
    auto handle = service_.submit(std::move(request), [ready = ready_, i] { ready->add(i); });
    if (!handle.ok()) {
      record.status = handle.status();
      return;
    }
    handles_[i] = std::move(*handle);
    ++live_;
  }

  // Its place in the ready list is the one behind the requests'.
  void send_long() {
    GenerationRequest request;
    request.prompt = long_prompts_(long_sent_++);
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    long_tokens_ = request.prompt.size();
    auto handle = service_.submit(std::move(request),
                                  [ready = ready_, i = requests_.size()] { ready->add(i); });
    if (handle.ok()) {
      long_ = std::move(*handle);
    } else {
      run_.long_prompts = handle.status();
    }
  }

  void receive_long() {
    if (!long_.stream().take(chunk_) || !chunk_.end) return;
    if (!is_completed(chunk_.end->reason)) {
      run_.long_prompts = chunk_.end->status;
      return;
    }
    run_.long_prompt_tokens += long_tokens_ - chunk_.end->cached_tokens;
    if (live_ > 0 && !run_.interrupted) send_long();
  }

  // The one that is under way counts with what there is of it.
  void end_long() {
    if (!run_.long_prompts.ok()) return;
    const auto last = service_.explain(long_.id());
    if (last.ok()) run_.long_prompt_tokens += last->computed_tokens;
    long_.cancel(FinishReason::kClient);
  }

  void receive(size_t i) {
    if (i == requests_.size()) return receive_long();
    RequestRecord& record = run_.requests[i];
    if (!handles_[i].stream().take(chunk_)) return;
    const TimeUs now = clock_.now();
    record.arrivals.insert(record.arrivals.end(), chunk_.tokens.size(), now);
    record.generated_tokens += static_cast<uint32_t>(chunk_.tokens.size());
    tokens_ += chunk_.tokens.size();
    if (!chunk_.end) return;
    record.ended = now;
    record.complete = is_completed(chunk_.end->reason);
    record.cached_tokens = chunk_.end->cached_tokens;
    record.preemptions = chunk_.end->preemptions;
    if (!record.complete && !run_.interrupted) {
      record.status = chunk_.end->status.ok()
                          ? internal_error("a request ended as {}", name_of(chunk_.end->reason))
                          : chunk_.end->status;
    }
    --live_;
    fill();
  }

  void stop_all() {
    run_.interrupted = true;
    for (size_t i = 0; i < next_; ++i) {
      if (run_.requests[i].status.ok() && !run_.requests[i].complete) {
        handles_[i].cancel(FinishReason::kClient);
      }
    }
  }

  InferenceService& service_;
  const std::span<const BenchRequest> requests_;
  const uint32_t concurrency_;
  const Clock& clock_;
  const LongPrompts& long_prompts_;
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  std::vector<RequestHandle> handles_;
  RequestHandle long_;
  uint64_t long_tokens_ = 0;
  uint32_t long_sent_ = 0;
  LoadRun run_;
  StreamChunk chunk_;
  size_t next_ = 0;
  uint64_t live_ = 0;
  uint64_t tokens_ = 0;
};

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
  ClosedLoop loop(*service, requests, level.concurrency, bench.clock, level.long_prompts);
  const LoadRun run =
      loop.run([&](uint64_t tokens) { bench.observer.got_tokens(tokens); }, bench.cancel);
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
    if (snapshot.decode_steps > 0) {
      result.engine_us_per_step =
          static_cast<double>(snapshot.decode_us) / static_cast<double>(snapshot.decode_steps);
    }
  }
  if (snapshot.device_pauses > 0) {
    result.device_pause_us = static_cast<double>(snapshot.device_pause_ns) / 1e3 /
                             static_cast<double>(snapshot.device_pauses);
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
