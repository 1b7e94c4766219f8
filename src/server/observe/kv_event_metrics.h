// What is told of the models' prefix caches, and to how many, at this moment.
#pragma once

#include <prometheus/metric_family.h>
#include <string>
#include <utility>
#include <vector>

#include "server/kv_events/kv_event_stats.h"

namespace skein {

void add_kv_event_families(const std::vector<std::pair<std::string, KvEventStats>>& models,
                           std::vector<prometheus::MetricFamily>& families);

}  // namespace skein
