// What stands in for the CUDA backend in a build without it.
#include <string_view>

#include "backend/registry.h"

namespace skein {

Result<std::unique_ptr<Backend>> make_cuda(const BackendOptions&, ComputePool&) {
  return unimplemented("this skein was built without CUDA (make build CUDA=1 builds it)");
}

Result<std::unique_ptr<Backend>> make_seeded_cuda(const BackendOptions& options, ComputePool& pool,
                                                  uint64_t) {
  return make_cuda(options, pool);
}

std::string_view cuda_architectures() {
  return {};
}

}  // namespace skein
