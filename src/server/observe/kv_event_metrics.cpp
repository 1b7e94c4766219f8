#include "server/observe/kv_event_metrics.h"

namespace skein {
namespace {

struct EventFamily {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  uint64_t KvEventStats::*value;
};

constexpr EventFamily kEventFamilies[] = {
    {"skein:kv_event_messages_total", "Messages about the prefix cache.",
     prometheus::MetricType::Counter, &KvEventStats::messages},
    {"skein:kv_event_blocks_total", "Blocks that were told to be stored or removed.",
     prometheus::MetricType::Counter, &KvEventStats::blocks},
    {"skein:kv_event_resets_total", "Times that all blocks were told anew, since too much waited.",
     prometheus::MetricType::Counter, &KvEventStats::resets},
    {"skein:kv_event_subscribers", "Who is told about the prefix cache.",
     prometheus::MetricType::Gauge, &KvEventStats::subscribers},
    {"skein:kv_event_dropped_total", "Subscribers and others that were cut.",
     prometheus::MetricType::Counter, &KvEventStats::dropped},
};

}  // namespace

void add_kv_event_families(const std::vector<std::pair<std::string, KvEventStats>>& models,
                           std::vector<prometheus::MetricFamily>& families) {
  if (models.empty()) return;
  for (const auto& [name, help, type, value] : kEventFamilies) {
    prometheus::MetricFamily& family =
        families.emplace_back(prometheus::MetricFamily{name, help, type, {}});
    for (const auto& [model, stats] : models) {
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"model_name", model}};
      metric.gauge.value = static_cast<double>(stats.*value);
      metric.counter.value = metric.gauge.value;
    }
  }
}

}  // namespace skein
