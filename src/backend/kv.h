// The paged cache of keys and values. Blocks have numbers; who holds which is the control plane's
// business, and how the numbers of a block lie in memory is the backend's.
#pragma once

#include <cstdint>

#include "backend/precision.h"

namespace skein {

// How a cache keeps keys and values: as they are, rounded to the nearest bfloat16, or as integers
// of 8 bits with a scale for each token and head.
enum class KvType : uint8_t { kF32, kBf16, kInt8 };
// The type where nobody says otherwise.
constexpr KvType default_kv_type(Precision precision) {
  return precision == Precision::kDefault ? KvType::kBf16 : KvType::kF32;
}

// The contents of a block of kBlockTokens tokens.
struct KvSpec {
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  KvType type = KvType::kF32;
};

// The memory behind BlockIds [0, blocks()).
class KvCache {
 public:
  virtual ~KvCache() = default;
  const KvSpec& spec() const { return spec_; }
  uint32_t blocks() const { return blocks_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t id() const { return id_; }  // no other cache of the backend ever has it

 protected:
  KvCache(const KvSpec& spec, uint32_t blocks, uint64_t bytes, uint64_t id)
      : spec_(spec), blocks_(blocks), bytes_(bytes), id_(id) {}

 private:
  KvSpec spec_;
  uint32_t blocks_;
  uint64_t bytes_, id_;
};

}  // namespace skein
