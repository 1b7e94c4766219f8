#include "base/folder.h"

#include <algorithm>
#include <system_error>

#include "base/patience.h"

namespace skein {

Result<std::vector<std::filesystem::path>> entries_of(const std::filesystem::path& folder) {
  const PatientScope patient;
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error) return unavailable("{}: cannot be read: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace skein
