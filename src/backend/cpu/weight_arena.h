// WeightArena: memory for packed weights, many matrices to a huge page. What is taken stays until
// the arena goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/host/memory.h"

namespace skein::cpu {

class WeightArena {
 public:
  // What is taken next, up to that many bytes, lies side by side. kResourceExhausted as below.
  Status reserve(size_t bytes) {
    if (bytes <= left()) return ok_status();
    SKEIN_ASSIGN(Buffer chunk, allocate_host(bytes));
    chunks_.push_back(std::move(chunk));
    used_ = 0;
    return ok_status();
  }

  // Zeroed and aligned to 64 bytes. kResourceExhausted with the size when it cannot be had.
  Result<uint8_t*> take(size_t bytes) {
    const size_t needed = (bytes + kLine - 1) / kLine * kLine;
    if (needed > left()) SKEIN_TRY(reserve(needed < kChunk ? kChunk : needed));
    auto* const taken = reinterpret_cast<uint8_t*>(raw(chunks_.back())) + used_;
    used_ += needed;
    return taken;
  }

 private:
  size_t left() const { return chunks_.empty() ? 0 : chunks_.back().bytes() - used_; }

  static constexpr size_t kLine = 64;
  static constexpr size_t kChunk = size_t{32} << 20;  // pages are taken when they are touched

  std::vector<Buffer> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace skein::cpu
