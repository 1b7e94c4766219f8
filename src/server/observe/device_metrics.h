// The metrics of the devices that models compute on, beside the process's own processors.
#pragma once

#include <prometheus/metric_family.h>
#include <vector>

#include "engine/manager/scheduler_manager.h"

namespace skein {

// Adds a family for each figure. What a device has computed is what models on it have, those
// included that left it.
void add_device_families(const SchedulerManager& models,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace skein
