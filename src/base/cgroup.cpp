#include "base/cgroup.h"

#include <algorithm>
#include <fstream>

namespace skein {
namespace {

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

}  // namespace skein
