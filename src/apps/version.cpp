#include "apps/version.h"

#include <fmt/format.h>

#include "apps/build_info.h"
#include "apps/commit.h"
#include "backend/registry.h"
#include "base/compute_pool.h"
#include "server/grpc/grpc_face.h"
#include "server/store/store.h"

namespace skein::apps {
namespace {

// The instructions that it would use on this machine.
std::string best_processor() {
  ComputePool pool(1);
  BackendOptions options;
  options.device = "cpu";
  const auto backend = make_backend(options, pool);
  return backend.ok() ? std::string((*backend)->name()) : backend.message();
}

// "cpu\nreference" -> "cpu, reference"
std::string on_one_line(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, ", ");
  return text;
}

}  // namespace

std::string verbose_version() {
  return fmt::format(
      "skein {}\n"
      "commit     {}\n"
      "compiler   {}\n"
      "processor  {}\n"
      "backends   {}\n"
      "stores     {}\n"
      "gRPC       {}\n"
      "libraries  {}",
      SKEIN_VERSION, kCommit, kCompiler, best_processor(), on_one_line(describe_backends()),
      has_shared_stores() ? "folder, PostgreSQL" : "folder; PostgreSQL: not built in",
      has_grpc() ? "vLLM's services" : "not built in", kLibraries);
}

}  // namespace skein::apps
