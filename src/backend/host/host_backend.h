// HostBackend: what every backend that computes in the process's own memory does alike. Nothing is
// queued there: an op is finished when it returns, read() gives the memory itself, and run() calls
// its function.
#pragma once

#include <algorithm>
#include <memory>

#include "backend/backend.h"
#include "backend/host/kv.h"
#include "backend/host/memory.h"
#include "backend/host/rope.h"
#include "backend/host/routing.h"
#include "backend/host/step.h"
#include "base/memory.h"

namespace skein {

class HostBackend : public Backend {
 public:
  uint64_t available() const final { return available_memory(); }
  Result<Buffer> allocate(size_t bytes) final { return allocate_host(bytes); }
  void write(Floats to, std::span<const float> from) final {
    std::copy(from.begin(), from.end(), raw(to));
  }
  HostRows read(Rows rows) final { return host_rows(rows); }

  Result<std::unique_ptr<Rope>> make_rope(std::span<const float> frequencies,
                                          float magnitude) final {
    return HostRope::make(frequencies, magnitude);
  }
  Result<std::unique_ptr<Routes>> make_routes(size_t rows, uint32_t used) final {
    return HostRoutes::make(rows, used);
  }
  Result<std::unique_ptr<KvCache>> make_kv(const KvSpec& spec, uint32_t blocks) final {
    return HostKv::make(spec, blocks, ++caches_made_);
  }
  uint64_t kv_block_bytes(const KvSpec& spec) const final { return HostKv::block_bytes(spec); }

  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows) final {
    return step_.begin(tokens, sequences, logit_rows);
  }
  void run(const Step&, uint64_t, FunctionRef<void()> ops) final { ops(); }

 private:
  HostStep step_;
  uint64_t caches_made_ = 0;
};

}  // namespace skein
