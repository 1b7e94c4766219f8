#include "backend/registry.h"

#include <string_view>

namespace skein {

#define SKEIN_BACKEND(name) \
  Result<std::unique_ptr<Backend>> make_##name(const BackendOptions& options, ComputePool& pool);
#include "backend/registry.def"

namespace {

struct Entry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options, ComputePool& pool);
};

constexpr Entry kBackends[] = {
#define SKEIN_BACKEND(name) {#name, make_##name},
#include "backend/registry.def"
};

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options, ComputePool& pool) {
  std::string names;
  for (const Entry& entry : kBackends) {
    if (entry.name == options.device) return entry.make(options, pool);
    names.append(names.empty() ? "" : ", ").append(entry.name);
  }
  return invalid_argument("'{}' is no backend; there are {}", options.device, names);
}

}  // namespace skein
