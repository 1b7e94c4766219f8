// How many HTTP answers there were, by route and status. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <prometheus/metric_family.h>

namespace skein {

struct Route;

class AnswerCounts {
 public:
  AnswerCounts();
  // `route` null: to what no route serves.
  void add(const Route* route, int status);
  // One sample for each pair that occurred.
  prometheus::MetricFamily family() const;

 private:
  static constexpr int kFirstStatus = 100, kStatuses = 500;
  using Row = std::array<std::atomic<uint64_t>, kStatuses>;
  const std::unique_ptr<Row[]> rows_;  // as routes(), and one for no route
};

}  // namespace skein
