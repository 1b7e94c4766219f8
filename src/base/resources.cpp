#include "base/resources.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <sched.h>
#include <set>
#include <string_view>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

// The control groups above this process.
enum class CgroupVersion : uint8_t { kV1, kV2 };

// Is `name` one of "cpu,memory"?
bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

// visit(folder, version) for the group of this process and each one above it, of version 2 and of
// the version 1 that has `controller`. Inside a container the path may be that of the host and not
// be there: the last folder, the mount, is then the own group. `root` is where /proc and /sys are.
void for_each_cgroup(const std::string& root, std::string_view controller,
                     const std::function<void(const std::string&, CgroupVersion)>& visit) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:cpu,memory:/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (!names.empty() && !lists(names, controller)) continue;
    const auto version = names.empty() ? CgroupVersion::kV2 : CgroupVersion::kV1;
    const std::string own_mount = names.empty() ? mount : mount + "/" + std::string(controller);
    std::string path = line.substr(second + 1);
    while (true) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      visit(own_mount + path, version);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

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

// How the two versions name the same things.
struct CgroupFiles {
  std::string_view limit, usage;
  std::string_view inactive, active;  // file cache, in memory.stat
};
constexpr CgroupFiles kV2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr CgroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};

std::optional<uint64_t> to_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// A file of one number; nullopt for "max" and for no file.
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return to_number(word);
}

// The number behind `key` in a file of "key number" lines; 0 when it is not there.
uint64_t number_behind(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string word, number;
  while (in >> word >> number) {
    if (word == key) return to_number(number).value_or(0);
    in.ignore(1 << 16, '\n');
  }
  return 0;
}

// The memory that the group in `folder` leaves.
std::optional<uint64_t> left_in(const std::string& folder, const CgroupFiles& files) {
  const auto limit = number_in(folder + "/" + std::string(files.limit));
  const auto usage = number_in(folder + "/" + std::string(files.usage));
  if (!limit || !usage) return std::nullopt;
  const std::string stat = folder + "/memory.stat";
  const uint64_t cache = number_behind(stat, files.inactive) + number_behind(stat, files.active);
  const uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
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

uint64_t available_memory(const std::string& root) {
  uint64_t least = UINT64_MAX;
  if (const uint64_t kb = number_behind(root + "/proc/meminfo", "MemAvailable:"); kb > 0) {
    least = kb * 1024;
  }
  for_each_cgroup(root, "memory", [&](const std::string& folder, CgroupVersion version) {
    const auto left = left_in(folder, version == CgroupVersion::kV2 ? kV2 : kV1);
    least = std::min(least, left.value_or(UINT64_MAX));
  });
  return least;
}

namespace {

thread_local bool gives_way = false;

// What sched_setattr() reads, in the size that it had at first.
struct SchedulingWish {
  uint32_t size = 48;
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t turn_ns = 0;
  uint64_t deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(SchedulingWish) == 48);

}  // namespace

void run_apart(const std::function<void()>& work) {
  if (!gives_way) return work();
  std::exception_ptr thrown;
  std::thread thread;
  try {
    thread = std::thread([&] {
      gives_way = true;  // the kernel knows, from the thread that starts it
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
  } catch (const std::exception&) {
    return work();
  }
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

void give_turn() {
  if (gives_way) ::sched_yield();
}

void give_way() {
  gives_way = true;
  constexpr int kNicer = 10, kNicest = 19;
  constexpr uint64_t kTurnNs = 100'000;  // the shortest that there is
  // 0 is this thread, for all of them. A batch thread does not interrupt another when it wakes up.
  // One that wakes up may have to wait for the end of this one's turn, which is more than a
  // millisecond unless a shorter one is asked for; kernels before 6.12 do not read that.
  const int nice = std::min(::getpriority(PRIO_PROCESS, 0) + kNicer, kNicest);
  const SchedulingWish wish{.policy = SCHED_BATCH, .nice = nice, .turn_ns = kTurnNs};
  if (::syscall(SYS_sched_setattr, 0, &wish, 0) == 0) return;
  const sched_param no_priority{};
  ::sched_setscheduler(0, SCHED_BATCH, &no_priority);
  ::setpriority(PRIO_PROCESS, 0, nice);
}

}  // namespace skein
