#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace skein::bench {

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

}  // namespace skein::bench
