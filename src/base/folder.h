// The entries of a folder.
#pragma once

#include <filesystem>
#include <vector>

#include "base/status.h"

namespace skein {

// The entries of a folder, in the order of their names. The standard library's iterator ends the
// process where it finds no memory, so this one waits for some (base/patience.h).
Result<std::vector<std::filesystem::path>> entries_of(const std::filesystem::path& folder);

}  // namespace skein
