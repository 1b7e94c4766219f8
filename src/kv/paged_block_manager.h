// PagedBlockManager: who holds each KV block, and which block to take next.
//
// A block is held (refs > 0), cached (refs == 0 and still findable through the PrefixCache) or free
// (refs == 0 and not findable). Cached and free blocks stand in one list: free ones at the front,
// then cached ones from least to most recently used. So taking the head is the whole eviction
// policy, and every operation is O(1).
//
// Invariants (check_invariants):
//   1. held + cached + free == capacity
//   2. a block is in the list exactly when refs == 0
//   3. in the list no free block stands behind a cached one
//
// Single-threaded. Nobody else writes a reference count. Misuse (releasing a block that nobody
// holds) is a CHECK: it can only be a bug of the caller.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace skein {

struct KVBlock {
  uint32_t refs = 0;
  bool cached = false;  // findable through the PrefixCache; may be true while held
  BlockId prev = kNoBlock;
  BlockId next = kNoBlock;
};

class PagedBlockManager {
 public:
  explicit PagedBlockManager(uint32_t capacity);

  uint32_t capacity() const { return static_cast<uint32_t>(blocks_.size()); }
  // Blocks that take() can hand out: free and cached ones.
  uint32_t available() const { return free_ + idle_cached_; }
  uint32_t cached_blocks() const { return idle_cached_; }
  uint32_t held_blocks() const { return capacity() - available(); }
  uint32_t refs(BlockId id) const { return at(id).refs; }
  bool cached(BlockId id) const { return at(id).cached; }

  struct Taken {
    BlockId id;
    bool evicted;  // it was cached: its entry must leave the PrefixCache
  };
  // The head of the list, with one reference and no longer cached. Needs available() > 0.
  Taken take();
  // One more holder; a cached block leaves the list.
  void acquire(BlockId id);
  // One holder less; the last one puts the block back: to the front if free, to the end if cached.
  void release(BlockId id);
  // A held block has become findable.
  void mark_cached(BlockId id);

  Status check_invariants() const;

 private:
  KVBlock& at(BlockId id);
  const KVBlock& at(BlockId id) const;
  void link(BlockId id, BlockId prev, BlockId next);
  void unlink(BlockId id);

  std::vector<KVBlock> blocks_;
  BlockId head_ = kNoBlock;
  BlockId tail_ = kNoBlock;
  uint32_t free_ = 0;
  uint32_t idle_cached_ = 0;
};

}  // namespace skein
