// KvPool: the bytes behind BlockIds. Who holds which block is the control plane's business.
//
// Block b of all layers lies together, so memory is taken as blocks are first used, and freed
// blocks that are used again cost nothing.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/status.h"
#include "model/spec.h"

namespace skein {

class KvPool {
 public:
  // kResourceExhausted when the address space cannot be had; pages are taken when written.
  static Result<KvPool> create(Backend& backend, const ModelSpec& spec, uint32_t blocks,
                               KvType type = KvType::kF32);

  static uint64_t bytes_per_block(const ModelSpec& spec, KvType type = KvType::kF32);

  uint32_t blocks() const { return blocks_; }
  uint64_t bytes() const { return memory_.bytes(); }
  KvLayer layer(uint32_t index) const;

 private:
  KvPool() = default;

  Buffer memory_;
  uint32_t blocks_ = 0;
  uint32_t layers_ = 0;
  uint64_t block_bytes_ = 0;
  uint64_t layer_bytes_ = 0;
  uint32_t heads_ = 0;
  uint32_t head_dim_ = 0;
  KvType type_ = KvType::kF32;
};

}  // namespace skein
