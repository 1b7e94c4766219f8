#include "backend/host/kv.h"

#include <fmt/format.h>

#include "base/check.h"

namespace skein {

Result<std::unique_ptr<KvCache>> HostKv::make(const KvSpec& spec, uint32_t blocks, uint64_t id) {
  if (blocks == 0) return invalid_argument("a KV cache of 0 blocks, it must have 1 at least");
  const uint64_t each = block_bytes(spec);
  if (each > SIZE_MAX / 2 / blocks) {
    return resource_exhausted("a KV cache of {} blocks of {} bytes each leaves the address space",
                              blocks, each);
  }
  auto memory = allocate_host(each * blocks);
  if (!memory.ok()) {
    return Status(memory.status().code(),
                  fmt::format("a KV cache of {} blocks of {} bytes each: {}", blocks, each,
                              memory.message()));
  }
  return std::unique_ptr<KvCache>(new HostKv(spec, blocks, id, std::move(*memory)));
}

KvLayer HostKv::layer(uint32_t index) const {
  SKEIN_CHECK(index < spec().layers, "layer {} of {}", index, spec().layers);
  return {raw(memory_) + index * layer_bytes(spec()), block_bytes(spec()), spec().heads,
          spec().head_dim, spec().type};
}

}  // namespace skein
