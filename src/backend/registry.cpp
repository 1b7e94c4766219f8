#include "backend/registry.h"

#include <string_view>

#include "backend/seeded_backend.h"

namespace skein {

#define SKEIN_BACKEND(name) \
  Result<std::unique_ptr<Backend>> make_##name(const BackendOptions& options, ComputePool& pool);
#include "backend/registry.def"
Result<std::unique_ptr<Backend>> make_seeded_cuda(const BackendOptions& options, ComputePool& pool,
                                                  uint64_t seed);
std::string_view cuda_architectures();  // empty: built without

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
  if (options.device == "auto") {
    if (!options.isa) {
      auto cuda = make_cuda(options, pool);
      if (cuda.ok()) return cuda;
    }
    return make_cpu(options, pool);
  }
  const std::string_view device = options.device;
  // What follows is for the backend to read.
  const bool has_more = device.starts_with("cuda:") || device.starts_with("reference:");
  const std::string_view name = has_more ? device.substr(0, device.find(':')) : device;
  std::string names;
  for (const Entry& entry : kBackends) {
    if (entry.name == name) return entry.make(options, pool);
    names.append(names.empty() ? "" : ", ").append(entry.name);
  }
  return invalid_argument("'{}' is no backend; there are {}", options.device, names);
}

Result<std::unique_ptr<Backend>> make_seeded_backend(const BackendOptions& options,
                                                     ComputePool& pool, uint64_t seed) {
  const bool asked = options.device.starts_with("cuda");
  if (asked || (options.device == "auto" && !options.isa)) {
    auto cuda = make_seeded_cuda(options, pool, seed);
    if (cuda.ok() || asked) return cuda;
  }
  return make_backend(options, pool);
}

std::string describe_backends() {
  std::string lines;
  for (const Entry& entry : kBackends) {
    lines.append(lines.empty() ? "" : "\n").append(entry.name);
    if (entry.name != "cuda") continue;
    lines.append(cuda_architectures().empty() ? ": not built in" : ": ");
    lines.append(cuda_architectures());
  }
  return lines;
}

}  // namespace skein
