#include "bench/result.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bench/statistics.h"

namespace skein::bench {
namespace {

double to_ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

bool failed(const RequestRecord& request) {
  return !request.status.ok();
}

// What clients waited for, in milliseconds.
struct Waits {
  std::vector<double> latency, first, between;

  void add(const RequestRecord& request) {
    if (!request.arrivals.empty()) first.push_back(to_ms(request.arrivals.front() - request.sent));
    for (size_t i = 1; i < request.arrivals.size(); ++i) {
      between.push_back(to_ms(request.arrivals[i] - request.arrivals[i - 1]));
    }
    if (request.complete) latency.push_back(to_ms(request.ended - request.sent));
  }
};

// Tokens in time where nobody waited for a first one (result.h). A request that got none at all
// waited until its end.
double decode_rate(const LoadRun& run) {
  std::vector<Interval> waiting;
  for (const RequestRecord& request : run.requests) {
    const TimeUs until = request.arrivals.empty() ? request.ended : request.arrivals.front();
    waiting.push_back({request.sent, until});
  }
  const std::vector<Interval> busy = united(std::move(waiting));
  TimeUs decoding_us = run.ended - run.began;
  for (const Interval& part : busy) decoding_us -= part.to - part.from;
  double tokens = 0;
  for (const RequestRecord& request : run.requests) {
    if (failed(request) || request.arrivals.size() < 2 || request.generated_tokens < 2) continue;
    // An event may bring more than one token, and a token may bring no event.
    const double weight = static_cast<double>(request.generated_tokens - 1) /
                          static_cast<double>(request.arrivals.size() - 1);
    for (size_t i = 1; i < request.arrivals.size(); ++i) {
      const TimeUs at = request.arrivals[i];
      const auto next = std::lower_bound(busy.begin(), busy.end(), at,
                                         [](const Interval& a, TimeUs t) { return a.to < t; });
      // One that arrives as somebody begins to wait belongs to the time before.
      if (next == busy.end() || at <= next->from) tokens += weight;
    }
  }
  return per_second(tokens, decoding_us);
}

std::vector<ClassResult> by_class(const LoadRun& run) {
  std::array<Waits, kPriorities> waits;
  std::array<uint64_t, kPriorities> counts{};
  for (const RequestRecord& request : run.requests) {
    if (failed(request)) continue;
    const auto at = static_cast<size_t>(request.priority);
    waits[at].add(request);
    ++counts[at];
  }
  std::vector<ClassResult> classes;
  for (size_t i = 0; i < kPriorities; ++i) {
    if (counts[i] == 0) continue;
    const Spread first = spread_of(waits[i].first), latency = spread_of(waits[i].latency);
    classes.push_back({.name = std::string(name_of(static_cast<Priority>(i))),
                       .num_requests = counts[i],
                       .ttft_p50_ms = first.p50,
                       .ttft_p99_ms = first.p99,
                       .p50_latency_ms = latency.p50,
                       .p99_latency_ms = latency.p99});
  }
  if (classes.size() < 2) classes.clear();
  return classes;
}

}  // namespace

BenchmarkResult summarize(std::string mode, uint32_t concurrency, const LoadRun& run) {
  BenchmarkResult out;
  out.mode = std::move(mode);
  out.concurrency = concurrency;
  out.interrupted = run.interrupted;
  Waits waits;
  double contexts = 0;
  for (const RequestRecord& request : run.requests) {
    if (failed(request)) {
      ++out.failed_requests;
      continue;
    }
    ++out.num_requests;
    out.total_tokens += request.generated_tokens;
    out.prompt_tokens += request.prompt_tokens;
    out.prefix_hit_tokens += request.cached_tokens;
    out.preemptions += request.preemptions;
    contexts += request.prompt_tokens + request.generated_tokens / 2.0;
    waits.add(request);
  }
  if (out.num_requests > 0) {
    out.mean_context_tokens = contexts / static_cast<double>(out.num_requests);
  }
  const TimeUs span = run.ended - run.began;
  out.total_time_seconds = static_cast<double>(span) / kUsPerSecond;
  out.tokens_per_second = per_second(static_cast<double>(out.total_tokens), span);
  // In an open loop there are times when nobody is there.
  if (concurrency > 0) out.decode_tokens_per_second = decode_rate(run);
  const Spread latency = spread_of(std::move(waits.latency));
  const Spread first = spread_of(std::move(waits.first));
  const Spread between = spread_of(std::move(waits.between));
  out.avg_latency_ms = latency.mean;
  out.p50_latency_ms = latency.p50;
  out.p99_latency_ms = latency.p99;
  out.ttft_p50_ms = first.p50;
  out.ttft_p99_ms = first.p99;
  out.itl_p50_ms = between.p50;
  out.itl_p99_ms = between.p99;
  out.classes = by_class(run);
  return out;
}

Status first_failure(const LoadRun& run) {
  for (const RequestRecord& request : run.requests) {
    if (failed(request)) return request.status;
  }
  return {};
}

}  // namespace skein::bench
