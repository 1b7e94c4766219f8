// The arithmetic of every figure: percentiles and rates. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"

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

}  // namespace skein::bench
