// The models' own gauges and counts at this moment.
#pragma once

#include <prometheus/metric_family.h>
#include <vector>

#include "base/time.h"
#include "engine/manager/scheduler_manager.h"

namespace skein {

// The families cover every model that is or ever was in memory. `now` is the engines' time.
std::vector<prometheus::MetricFamily> engine_families(const SchedulerManager& models, TimeUs now);

}  // namespace skein
