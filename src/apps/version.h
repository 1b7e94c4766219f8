// Says what this binary is.
#pragma once

#include <string>

namespace skein::apps {

// Version, commit, compiler, what it computes on here, backends and libraries, a line each.
std::string verbose_version();

}  // namespace skein::apps
