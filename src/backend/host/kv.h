// The KV cache of host backends: block b of all layers lies together, so memory is taken as blocks
// are first used, and blocks that are used again cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "backend/host/memory.h"
#include "backend/kv.h"
#include "base/ids.h"
#include "base/status.h"

namespace skein {

// One layer of a paged cache. Block b, head h holds its keys, then as many bytes of values:
//   kF32   keys [head_dim][kBlockTokens] (a token is a column), values [kBlockTokens][head_dim]
//   kBf16  vectors of 16 pairs: keys [half of the tokens][pair of dimensions][16 tokens][2], values
//          [16 dimensions][pair of tokens][each of the 16][2]
//   kInt8  vectors of 16: keys [half of the tokens][dimension][16 tokens], values
//          [16 dimensions][token][each of the 16], each followed by [kBlockTokens] float scales
// The last two fill dimensions up to a multiple of 16; nobody reads what is there.
struct KvLayer {
  std::byte* data = nullptr;  // of block 0
  size_t block_bytes = 0;     // from a block to the next
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  KvType type = KvType::kF32;

  // Elements of the keys of one head of one block; the values have as many.
  static size_t half_elements(uint32_t head_dim, KvType type) {
    const size_t dims = type == KvType::kF32 ? head_dim : (size_t{head_dim} + 15) / 16 * 16;
    return kBlockTokens * dims;
  }
  static size_t element_bytes(KvType type) {
    return type == KvType::kF32 ? 4 : type == KvType::kBf16 ? 2 : 1;
  }
  static size_t half_bytes(uint32_t head_dim, KvType type) {
    const size_t scales = type == KvType::kInt8 ? kBlockTokens * sizeof(float) : 0;
    return half_elements(head_dim, type) * element_bytes(type) + scales;
  }
  static size_t head_bytes(uint32_t head_dim, KvType type) {
    return 2 * half_bytes(head_dim, type);
  }
  std::byte* head(BlockId block, uint32_t h) const {
    return data + block.value * block_bytes + h * head_bytes(head_dim, type);
  }
  // The place of an element in its head, in elements. `slot` is a token's place in its block.
  size_t key_index(uint32_t slot, uint32_t d) const {
    const size_t dims = half_elements(head_dim, type) / kBlockTokens;
    if (type == KvType::kF32) return size_t{d} * kBlockTokens + slot;
    if (type == KvType::kInt8) return (slot / 16 * dims + d) * 16 + slot % 16;
    return (slot / 16 * (dims / 2) + d / 2) * 32 + size_t{slot} % 16 * 2 + d % 2;
  }
  size_t value_index(uint32_t slot, uint32_t d) const {
    const size_t values = half_bytes(head_dim, type) / element_bytes(type);
    if (type == KvType::kF32) return values + size_t{slot} * head_dim + d;
    if (type == KvType::kInt8) {
      return values + (size_t{d} / 16 * kBlockTokens + slot) * 16 + d % 16;
    }
    return values + (size_t{d} / 16 * (kBlockTokens / 2) + slot / 2) * 32 + size_t{d} % 16 * 2 +
           slot % 2;
  }
  // With kInt8, the places of a token's two scales, in floats.
  size_t key_scale_index(uint32_t slot) const {
    return half_elements(head_dim, type) / sizeof(float) + slot;
  }
  size_t value_scale_index(uint32_t slot) const {
    return half_bytes(head_dim, type) / sizeof(float) + key_scale_index(slot);
  }
};

class HostKv final : public KvCache {
 public:
  // As Backend::make_kv.
  static Result<std::unique_ptr<KvCache>> make(const KvSpec& spec, uint32_t blocks, uint64_t id);
  static uint64_t block_bytes(const KvSpec& spec) { return spec.layers * layer_bytes(spec); }

  KvLayer layer(uint32_t index) const;

 private:
  HostKv(const KvSpec& spec, uint32_t blocks, uint64_t id, Buffer memory)
      : KvCache(spec, blocks, memory.bytes(), id), memory_(std::move(memory)) {}
  static uint64_t layer_bytes(const KvSpec& spec) {
    return uint64_t{spec.heads} * KvLayer::head_bytes(spec.head_dim, spec.type);
  }

  Buffer memory_;
};

inline const HostKv& host_kv(const KvCache& cache) {
  return static_cast<const HostKv&>(cache);
}

}  // namespace skein
