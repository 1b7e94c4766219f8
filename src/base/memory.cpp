#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/cgroup.h"

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

}  // namespace skein
