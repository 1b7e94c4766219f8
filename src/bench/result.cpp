#include "bench/result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace skein::bench {
namespace {

double to_ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

bool failed(const RequestRecord& request) {
  return !request.status.ok();
}

// The waits of clients, in milliseconds.
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

// The time of a closed loop, by what it was for (result.h).
class Phases {
 public:
  explicit Phases(const LoadRun& run) : began_(run.began), tail_(run.ended) {
    TimeUs last_sent = run.began;
    for (const RequestRecord& request : run.requests) {
      // One that got no token at all waited until its end.
      const TimeUs until = request.arrivals.empty() ? request.ended : request.arrivals.front();
      waiting_.push_back({request.sent, until});
      last_sent = std::max(last_sent, request.sent);
    }
    waiting_ = united(std::move(waiting_));
    // Nobody takes the place of the first one to end after the last one came.
    for (const RequestRecord& request : run.requests) {
      if (request.ended <= last_sent || request.ended > tail_) continue;
      tail_ = request.ended;
      const size_t events = request.arrivals.size();
      slack_ = events < 2 ? 0 : (request.arrivals[events - 1] - request.arrivals[events - 2]) / 2;
    }
  }

  TimeUs waiting_us() const { return waiting_until(kNever); }
  TimeUs decoding_us() const { return tail_ - began_ - waiting_until(tail_); }

  // Whether what arrived at `at` was made while all places were taken and nobody waited.
  bool is_decoding(TimeUs at) const {
    if (at > tail_ + slack_) return false;
    const auto next = std::lower_bound(waiting_.begin(), waiting_.end(), at,
                                       [](const Interval& a, TimeUs t) { return a.to < t; });
    // One that arrives as somebody begins to wait belongs to the time before.
    return next == waiting_.end() || at <= next->from;
  }

  // Whether all of the time between two tokens of a stream was such.
  bool is_decoding(TimeUs from, TimeUs to) const {
    return is_decoding(to) &&
           std::none_of(waiting_.begin(), waiting_.end(),
                        [&](const Interval& w) { return w.from < to && w.to > from; });
  }

 private:
  TimeUs waiting_until(TimeUs end) const {
    TimeUs sum = 0;
    for (const Interval& part : waiting_) {
      sum += std::max<TimeUs>(0, std::min(part.to, end) - part.from);
    }
    return sum;
  }

  const TimeUs began_;
  TimeUs tail_;       // from here on places stay empty
  TimeUs slack_ = 0;  // in which the others of the same step get their tokens
  std::vector<Interval> waiting_;
};

double prefill_rate(const LoadRun& run, const Phases& phases) {
  double tokens = 0;
  for (const RequestRecord& request : run.requests) {
    if (failed(request) || request.arrivals.empty()) continue;
    tokens += request.prompt_tokens - std::min(request.cached_tokens, request.prompt_tokens);
  }
  return per_second(tokens, phases.waiting_us());
}

double decode_rate(const LoadRun& run, const Phases& phases) {
  double tokens = 0;
  for (const RequestRecord& request : run.requests) {
    if (failed(request) || request.arrivals.size() < 2 || request.generated_tokens < 2) continue;
    // An event may bring more than one token, and a token may bring no event.
    const double weight = static_cast<double>(request.generated_tokens - 1) /
                          static_cast<double>(request.arrivals.size() - 1);
    for (size_t i = 1; i < request.arrivals.size(); ++i) {
      if (phases.is_decoding(request.arrivals[i])) tokens += weight;
    }
  }
  return per_second(tokens, phases.decoding_us());
}

double steady_itl_p99(const LoadRun& run, const Phases& phases) {
  std::vector<double> gaps;
  for (const RequestRecord& request : run.requests) {
    if (failed(request)) continue;
    for (size_t i = 1; i < request.arrivals.size(); ++i) {
      const TimeUs from = request.arrivals[i - 1], to = request.arrivals[i];
      if (phases.is_decoding(from, to)) gaps.push_back(to_ms(to - from));
    }
  }
  return spread_of(std::move(gaps)).p99;
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

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = static_cast<double>(sorted.size() - 1) * percent / 100;
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 50),
          .p99 = percentile(values, 99),
          .max = values.back()};
}

double per_second(double things, TimeUs over_us) {
  return over_us <= 0 ? 0 : things * kUsPerSecond / static_cast<double>(over_us);
}

size_t median_index(std::span<const double> values) {
  SKEIN_CHECK(!values.empty(), "the median of nothing");
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return values[a] < values[b] || (values[a] == values[b] && a < b);
  });
  return order[(order.size() - 1) / 2];
}

std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.from < b.from; });
  std::vector<Interval> out;
  for (const Interval& next : intervals) {
    if (out.empty() || next.from > out.back().to) {
      out.push_back(next);
    } else {
      out.back().to = std::max(out.back().to, next.to);
    }
  }
  return out;
}

BenchmarkResult summarize(std::string mode, uint32_t concurrency, const LoadRun& run) {
  BenchmarkResult out;
  out.mode = std::move(mode);
  out.concurrency = concurrency;
  out.interrupted = run.interrupted;
  out.long_prompt_tokens = run.long_prompt_tokens;
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
  if (concurrency > 0) {  // in an open loop there are times when nobody is there
    const Phases phases(run);
    out.prefill_tokens_per_second = prefill_rate(run, phases);
    out.decode_tokens_per_second = decode_rate(run, phases);
    out.steady_itl_p99_ms = steady_itl_p99(run, phases);
  }
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
