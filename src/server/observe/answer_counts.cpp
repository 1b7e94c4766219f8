#include "server/observe/answer_counts.h"

#include <algorithm>
#include <string>

#include "server/router.h"

namespace skein {

AnswerCounts::AnswerCounts() : rows_(std::make_unique<Row[]>(routes().size() + 1)) {}

void AnswerCounts::add(const Route* route, int status) {
  const size_t row =
      route == nullptr ? routes().size() : static_cast<size_t>(route - routes().data());
  const int column = std::clamp(status - kFirstStatus, 0, kStatuses - 1);
  rows_[row][static_cast<size_t>(column)].fetch_add(1, std::memory_order_relaxed);
}

prometheus::MetricFamily AnswerCounts::family() const {
  prometheus::MetricFamily family{"skein:http_requests_total",
                                  "HTTP requests that were answered, by route and status.",
                                  prometheus::MetricType::Counter,
                                  {}};
  for (size_t row = 0; row <= routes().size(); ++row) {
    const bool known = row < routes().size();
    for (int column = 0; column < kStatuses; ++column) {
      const uint64_t count =
          rows_[row][static_cast<size_t>(column)].load(std::memory_order_relaxed);
      if (count == 0) continue;
      prometheus::ClientMetric metric;
      metric.label = {{"route", std::string(known ? routes()[row].pattern : "other")},
                      {"method", std::string(known ? routes()[row].method : "other")},
                      {"status", std::to_string(kFirstStatus + column)}};
      metric.counter.value = static_cast<double>(count);
      family.metric.push_back(std::move(metric));
    }
  }
  return family;
}

}  // namespace skein
