// The control groups above this process.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace skein {

enum class CgroupVersion : uint8_t { kV1, kV2 };

// visit(folder, version) for the group of this process and each one above it, of version 2 and of
// the version 1 that has `controller`. Inside a container the path may be that of the host and not
// be there: the last folder, the mount, is then the own group. `root` is where /proc and /sys are.
void for_each_cgroup(const std::string& root, std::string_view controller,
                     const std::function<void(const std::string&, CgroupVersion)>& visit);

}  // namespace skein
