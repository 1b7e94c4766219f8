#include "server/observe/device_metrics.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/time.h"

namespace skein {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct ShownDevice {
  std::shared_ptr<const ComputeDevice> device;
  uint64_t steps = 0;
  uint64_t busy_us = 0;

  void add(const EngineSnapshot& snapshot) {
    steps += snapshot.scheduler.steps;
    busy_us += snapshot.model_time_us;
  }
};

std::vector<ShownDevice> devices_of(const SchedulerManager& models) {
  std::vector<ShownDevice> devices;
  for (const ModelStatus& model : models.models()) {
    if (!model.device) continue;
    auto it = std::find_if(devices.begin(), devices.end(),
                           [&](const ShownDevice& one) { return one.device == model.device; });
    if (it == devices.end()) it = devices.insert(it, ShownDevice{model.device});
    it->add(model.past);
    if (model.served) it->add(model.served->snapshot());
  }
  return devices;
}

// Both, since only the one that the family's type asks for is read.
ClientMetric device_metric(const ComputeDevice& device, double value, const char* kind = nullptr) {
  ClientMetric metric;
  metric.label = {{"device", device.id()}, {"name", device.name()}};
  if (kind != nullptr) metric.label.push_back({"kind", kind});
  metric.gauge.value = metric.counter.value = value;
  return metric;
}

MetricFamily device_memory(const std::vector<ShownDevice>& devices) {
  MetricFamily family{"skein:device_memory_bytes",
                      "Memory of a device by what it is: total, used or free, by all processes.",
                      MetricType::Gauge,
                      {}};
  for (const ShownDevice& shown : devices) {
    const auto [total, free] = shown.device->memory();
    const std::pair<const char*, uint64_t> kinds[] = {
        {"total", total}, {"used", total - free}, {"free", free}};
    for (const auto& [kind, bytes] : kinds) {
      family.metric.push_back(device_metric(*shown.device, static_cast<double>(bytes), kind));
    }
  }
  return family;
}

}  // namespace

void add_device_families(const SchedulerManager& models, std::vector<MetricFamily>& families) {
  const std::vector<ShownDevice> devices = devices_of(models);
  if (devices.empty()) return;
  families.push_back(device_memory(devices));
  const auto add = [&](const char* name, const char* help, MetricType type, const auto& value) {
    MetricFamily family{name, help, type, {}};
    for (const ShownDevice& shown : devices) {
      family.metric.push_back(device_metric(*shown.device, static_cast<double>(value(shown))));
    }
    families.push_back(std::move(family));
  };
  add("skein:device_up", "0 while the device is lost.", MetricType::Gauge,
      [](const ShownDevice& shown) { return shown.device->is_lost() ? 0 : 1; });
  add("skein:device_lost_total", "How often the device was lost.", MetricType::Counter,
      [](const ShownDevice& shown) { return shown.device->times_lost(); });
  add("skein:device_steps_total", "Steps that the device has computed.", MetricType::Counter,
      [](const ShownDevice& shown) { return shown.steps; });
  add("skein:device_busy_seconds_total",
      "Time that models had steps on the device; of several at once each counts.",
      MetricType::Counter,
      [](const ShownDevice& shown) { return static_cast<double>(shown.busy_us) / kUsPerSecond; });
}

}  // namespace skein
