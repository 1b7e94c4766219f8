// HostBackend: what every backend that computes in the process's own memory does alike. Nothing is
// queued there: an op is finished when it returns, read() gives the memory itself, and run() calls
// its function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/backend.h"
#include "backend/host/kv.h"
#include "backend/host/memory.h"
#include "backend/host/routing.h"
#include "backend/host/step.h"
#include "backend/op_params.h"
#include "base/resources.h"
#include "base/status.h"

namespace skein {

// The rope of host backends: its angles at a position, the same code for all of them, since cos and
// sin are arithmetic.h's.
class HostRope final : public Rope {
 public:
  // As Backend::make_rope.
  static Result<std::unique_ptr<Rope>> make(std::span<const float> frequencies, float magnitude) {
    return std::unique_ptr<Rope>(new HostRope(frequencies, magnitude));
  }

  // [cos | sin], width() floats.
  void angles(uint32_t position, float* out) const {
    for (size_t j = 0; j < frequencies_.size(); ++j) {
      const auto [cos, sin] = arithmetic::cos_sin(static_cast<float>(position) * frequencies_[j]);
      out[j] = cos * magnitude_;
      out[frequencies_.size() + j] = sin * magnitude_;
    }
  }

 private:
  HostRope(std::span<const float> frequencies, float magnitude)
      : Rope(2 * frequencies.size()),
        frequencies_(frequencies.begin(), frequencies.end()),
        magnitude_(magnitude) {}

  std::vector<float> frequencies_;
  float magnitude_;
};

inline const HostRope& host_rope(const Rope& rope) {
  return static_cast<const HostRope&>(rope);
}

class HostBackend : public Backend {
 public:
  bool runs_encoders() const final { return true; }
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
             std::span<const uint32_t> logit_rows, const DrawQueue* /*before*/) final {
    return step_.begin(tokens, sequences, logit_rows);
  }
  void run(const Step&, uint64_t, FunctionRef<void()> ops) final { ops(); }

 private:
  HostStep step_;
  uint64_t caches_made_ = 0;
};

}  // namespace skein
