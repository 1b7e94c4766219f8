#include "base/cpus.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sched.h>
#include <set>
#include <thread>
#include <utility>

#include "base/cgroup.h"

namespace skein {
namespace {

std::optional<int64_t> signed_in(const std::string& path) {
  std::ifstream in(path);
  int64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

// Among the allowed CPUs. One that says nothing about itself is a core.
uint32_t allowed_cores(const std::string& root) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) {
    return std::max(1U, std::thread::hardware_concurrency());
  }
  std::set<std::pair<int64_t, int64_t>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    const std::string topology =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const auto core = signed_in(topology + "core_id");
    const auto package = signed_in(topology + "physical_package_id");
    cores.insert(core && package ? std::pair(*package, *core)
                                 : std::pair(int64_t{-1} - cpu, int64_t{0}));
  }
  return static_cast<uint32_t>(std::max<size_t>(1, cores.size()));
}

// Quota and period, as one file of "max 100000" or as two.
std::optional<std::pair<int64_t, int64_t>> quota_in(const std::string& folder,
                                                    CgroupVersion version) {
  if (version == CgroupVersion::kV1) {
    const auto quota = signed_in(folder + "/cpu.cfs_quota_us");
    const auto period = signed_in(folder + "/cpu.cfs_period_us");
    if (!quota || !period) return std::nullopt;
    return std::pair(*quota, *period);
  }
  std::ifstream in(folder + "/cpu.max");
  int64_t quota = 0, period = 0;
  if (!(in >> quota >> period)) return std::nullopt;
  return std::pair(quota, period);
}

}  // namespace

uint32_t usable_cpus(const std::string& root) {
  uint32_t least = allowed_cores(root);
  for_each_cgroup(root, "cpu", [&](const std::string& folder, CgroupVersion version) {
    const auto quota = quota_in(folder, version);
    if (!quota || quota->first <= 0 || quota->second <= 0) return;
    // Threads beyond whole CPUs would spend the others' time waiting for them.
    const int64_t cpus = std::max<int64_t>(1, quota->first / quota->second);
    least = static_cast<uint32_t>(std::min<int64_t>(least, cpus));
  });
  return least;
}

}  // namespace skein
