// BlockTable: the blocks that hold one request's KV, in order. Position p lives in block p / 32.
//
// Only KvAllocator changes a table, and while a plan of its request is in flight it only ever
// appends, so blocks() taken for a plan stays valid until that plan commits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "kv/prefix_cache.h"

namespace skein {

class BlockTable {
 public:
  // Empties the table for a request of the tenant `salt` that never exceeds `max_tokens`. One that
  // does not share takes nothing from the prefix cache and leaves nothing there. All memory is
  // taken here, none later; may throw std::bad_alloc and then leaves the table empty.
  void reset(const Hash128& salt, uint64_t max_tokens, bool shares = true) {
    blocks_.clear();
    keys_.clear();
    place_ = {salt, kPrefixRoot};
    linked_ = 0;
    shares_ = shares;
    blocks_.reserve(blocks_for(max_tokens));
    keys_.reserve(blocks_for(max_tokens));
  }

  std::span<const BlockId> blocks() const { return blocks_; }
  uint32_t size() const { return static_cast<uint32_t>(blocks_.size()); }
  bool empty() const { return blocks_.empty(); }
  bool shares() const { return shares_; }
  // Leading blocks whose contents are complete and known to the prefix cache: nobody writes to
  // them.
  uint32_t linked_blocks() const { return linked_; }
  uint32_t linked_tokens() const { return linked_ * kBlockTokens; }

 private:
  friend class KvAllocator;

  std::vector<BlockId> blocks_;
  std::vector<Hash128>
      keys_;           // chain keys of the leading full blocks of tokens, as far as needed yet
  PrefixPlace place_;  // where block number linked_ hangs
  uint32_t linked_ = 0;
  bool shares_ = true;
};

}  // namespace skein
