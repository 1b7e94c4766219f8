// A picture of a run: throughput and latency against the number of requests at once, and the
// hardware's limit. One SVG that needs nothing else, readable on light and dark pages.
#pragma once

#include <span>
#include <string>

#include "bench/report.h"

namespace skein::bench {

// One line per report (at most four); the limit and the title's second line are the first one's.
// kInvalidArgument when there is no level of concurrency to draw.
Result<std::string> plot_svg(std::span<const Named> reports);

}  // namespace skein::bench
