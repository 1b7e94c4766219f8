// BenchmarkResult: what one level of load came to; and how it is made from what each client saw.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein::bench {

// The value below which `percent` of the values lie: between two of them the line from one to the
// other, as numpy.percentile does unless told otherwise. `sorted` is in ascending order; 0 for
// none.
double percentile(std::span<const double> sorted, double percent);

struct Spread {
  uint64_t count = 0;
  double mean = 0, p50 = 0, p99 = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

// Things a second; 0 where no time has passed.
double per_second(double things, TimeUs over_us);

// The index of the median: of an even number the lower of the two in the middle, so that it is one
// that was measured. At least one value.
size_t median_index(std::span<const double> values);

// A stretch of time, [from, to].
struct Interval {
  TimeUs from = 0, to = 0;
};
// The stretches that `intervals` cover together, in order, none touching the next.
std::vector<Interval> united(std::vector<Interval> intervals);

// One request as its client saw it. Times are those of one clock.
struct RequestRecord {
  Priority priority = Priority::NORMAL;
  TimeUs sent = 0;
  TimeUs ended = 0;
  std::vector<TimeUs> arrivals;  // one per token, or per event that brought some
  uint32_t generated_tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt
  uint32_t preemptions = 0;
  bool complete = false;  // false: it failed, or the run was interrupted
  Status status;
};

// One level of load, request by request.
struct LoadRun {
  std::vector<RequestRecord> requests;
  TimeUs began = 0, ended = 0;
  bool interrupted = false;
  uint64_t long_prompt_tokens = 0;  // computed for prompts that came in between
  Status long_prompts;              // why no more of these came
};

// The figures of one class of requests in a mixed load.
struct ClassResult {
  std::string name;
  uint64_t num_requests = 0;
  double ttft_p50_ms = 0, ttft_p99_ms = 0;
  double p50_latency_ms = 0, p99_latency_ms = 0;
};

struct BenchmarkResult {
  // "single", "batched"; "disturbed": batched while long prompts keep arriving; "serve" over HTTP.
  std::string mode;
  uint64_t concurrency = 0;  // requests in flight; 0: an open loop
  double speedup = 0;        // over the first result of the run
  uint64_t num_requests = 0;
  uint64_t failed_requests = 0;  // in no other figure
  uint64_t total_tokens = 0;     // generated
  uint64_t prompt_tokens = 0;
  double total_time_seconds = 0;
  double tokens_per_second = 0;  // generated tokens over all of the time, prefill included
  // Only a closed loop has these; 0 where there was no such time. Prefill: prompt tokens that were
  // not found in the cache, over the time in which somebody waited for a first token. Decode:
  // tokens that arrived while all places were taken and nobody waited for a first one, over that
  // time: what the hardware's limit can be held against.
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double avg_latency_ms = 0, p50_latency_ms = 0, p99_latency_ms = 0;  // whole requests
  double ttft_p50_ms = 0, ttft_p99_ms = 0;                            // time to the first token
  double itl_p50_ms = 0, itl_p99_ms = 0;                              // between tokens
  double steady_itl_p99_ms = 0;      // of the time that decode_tokens_per_second is about
  uint64_t long_prompt_tokens = 0;   // computed for the long prompts; in no other figure
  std::optional<double> itl_growth;  // steady_itl_p99_ms over that without the long prompts
  uint64_t prefix_hit_tokens = 0;    // prompt tokens that were found computed
  uint64_t preemptions = 0;
  double mean_context_tokens = 0;               // of a sequence, halfway through its answer
  std::optional<double> outside_model_percent;  // of a step's time
  std::optional<double> engine_us_per_step;     // of its thread, without prompts and the model
  std::optional<double> device_pause_us;        // between a step on a device and the one behind it
  std::optional<double> energy_joules;          // of the CPU packages, where they can be read
  std::optional<double> joules_per_token;
  std::optional<double> steal_percent;            // time that the host gave to others
  std::optional<double> limit_tokens_per_second;  // the hardware's, at this batch
  std::optional<double> percent_of_limit;         // decode_tokens_per_second of it
  bool interrupted = false;
  std::vector<ClassResult> classes;  // where there is more than one
};

// Calls visit(name, member) for every plain member, in the order in which JSON has them: the one
// list that the writer, the reader and the comparison share.
template <class Result, class Visit>
void visit_members(Result& r, const Visit& visit) {
  visit("mode", r.mode);
  visit("concurrency", r.concurrency);
  visit("speedup", r.speedup);
  visit("num_requests", r.num_requests);
  visit("failed_requests", r.failed_requests);
  visit("total_tokens", r.total_tokens);
  visit("prompt_tokens", r.prompt_tokens);
  visit("total_time_seconds", r.total_time_seconds);
  visit("tokens_per_second", r.tokens_per_second);
  visit("prefill_tokens_per_second", r.prefill_tokens_per_second);
  visit("decode_tokens_per_second", r.decode_tokens_per_second);
  visit("avg_latency_ms", r.avg_latency_ms);
  visit("p50_latency_ms", r.p50_latency_ms);
  visit("p99_latency_ms", r.p99_latency_ms);
  visit("ttft_p50_ms", r.ttft_p50_ms);
  visit("ttft_p99_ms", r.ttft_p99_ms);
  visit("itl_p50_ms", r.itl_p50_ms);
  visit("itl_p99_ms", r.itl_p99_ms);
  visit("steady_itl_p99_ms", r.steady_itl_p99_ms);
  visit("long_prompt_tokens", r.long_prompt_tokens);
  visit("itl_growth", r.itl_growth);
  visit("prefix_hit_tokens", r.prefix_hit_tokens);
  visit("preemptions", r.preemptions);
  visit("mean_context_tokens", r.mean_context_tokens);
  visit("outside_model_percent", r.outside_model_percent);
  visit("engine_us_per_step", r.engine_us_per_step);
  visit("device_pause_us", r.device_pause_us);
  visit("energy_joules", r.energy_joules);
  visit("joules_per_token", r.joules_per_token);
  visit("steal_percent", r.steal_percent);
  visit("limit_tokens_per_second", r.limit_tokens_per_second);
  visit("percent_of_limit", r.percent_of_limit);
  visit("interrupted", r.interrupted);
}

// Everything that follows from the requests alone. Incomplete requests count with the tokens they
// got, but their latency is nobody's; failed ones count as failed.
BenchmarkResult summarize(std::string mode, uint32_t concurrency, const LoadRun& run);

// The first reason why a request failed; ok if none did.
Status first_failure(const LoadRun& run);

}  // namespace skein::bench
