#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace skein {
namespace {

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

// What the group in `folder` leaves.
std::optional<uint64_t> left_in(const std::string& folder, const CgroupFiles& files) {
  const auto limit = number_in(folder + "/" + std::string(files.limit));
  const auto usage = number_in(folder + "/" + std::string(files.usage));
  if (!limit || !usage) return std::nullopt;
  const std::string stat = folder + "/memory.stat";
  const uint64_t cache = number_behind(stat, files.inactive) + number_behind(stat, files.active);
  const uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

// The least that the group at `path` below `mount` and the groups above it leave. Inside a
// container the path may be that of the host and not be there; the mount is then the own group.
uint64_t left_above(const std::string& mount, std::string path, const CgroupFiles& files) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    least = std::min(least, left_in(mount + path, files).value_or(UINT64_MAX));
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Is `name` one of "cpu,memory"?
bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  uint64_t least = UINT64_MAX;
  if (const uint64_t kb = number_behind(root + "/proc/meminfo", "MemAvailable:"); kb > 0) {
    least = kb * 1024;
  }
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:cpu,memory:/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names.empty()) {
      least = std::min(least, left_above(mount, path, kV2));
    } else if (lists(names, "memory")) {
      least = std::min(least, left_above(mount + "/memory", path, kV1));
    }
  }
  return least;
}

}  // namespace skein
