// KvAllocator: what the scheduler sees of KV memory. Everything it does is all or nothing.
//
// It keeps PagedBlockManager and PrefixCache in step: a block that is taken for new use leaves the
// cache, a block whose KV has been computed enters it. Single-threaded; allocates nothing after
// construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"
#include "kv/block_table.h"
#include "kv/kv_event.h"
#include "kv/paged_block_manager.h"
#include "kv/prefix_cache.h"

namespace skein {

class KvAllocator {
 public:
  struct Config {
    uint32_t blocks = 0;
    bool prefix_cache = true;
    HashKey hash_key;
    bool events = false;  // see events()
  };
  explicit KvAllocator(const Config& config);

  uint32_t capacity() const { return manager_.capacity(); }
  // Blocks that can be had now; cached ones count, and go in LRU order.
  uint32_t available() const { return manager_.available(); }
  uint32_t cached_blocks() const { return manager_.cached_blocks(); }
  uint32_t refs(BlockId id) const { return manager_.refs(id); }
  bool cached(BlockId id) const { return manager_.cached(id); }  // findable
  uint64_t evictions() const { return evictions_; }

  // Whether blocks of this table come from the prefix cache and go there.
  bool shares(const BlockTable& table) const { return caching_ && table.shares(); }

  // Makes the table cover `tokens` tokens. False, and nothing changed, if blocks are short.
  [[nodiscard]] bool grow(BlockTable& table, uint64_t tokens);

  // The cached blocks that continue the table when `tokens` are the request's tokens; at most the
  // full blocks among them. Written to `hits` (cleared first), nothing acquired.
  void match(BlockTable& table, std::span<const TokenId> tokens, std::vector<BlockId>& hits) const;

  // Extends the table by every cached block that continues it; returns how many.
  uint32_t take_cached(BlockTable& table, std::span<const TokenId> tokens);

  // The key of the block that comes next in the table, for telling whether two requests are about
  // to compute the same one. Needs that block's tokens to be known.
  Hash128 next_key(BlockTable& table, std::span<const TokenId> tokens) const;

  // The KV of the first `computed` tokens is in the table's blocks: makes the full ones findable.
  // Where another has computed the same meanwhile, the table goes on with that block and gives its
  // own back, if nobody is `reading` the table; else it and what follows stay private for now. So a
  // table holds every entry that its own hang on, and a parent is never evicted before its child.
  void publish(BlockTable& table, std::span<const TokenId> tokens, uint64_t computed,
               bool reading = false);

  // Gives every block back, last one first, so that tails are evicted before the heads they need.
  void release(BlockTable& table);

  // With Config::events: what has changed in the prefix cache since clear_events(), in order. They
  // must be taken after a publish() and before the next grow(): memory is there for so many.
  std::span<const KvEvent> events() const { return events_; }
  void clear_events() { events_.clear(); }
  // What a findable block holds.
  PrefixCache::Contents contents(BlockId id) const { return cache_.contents(id); }

  // `tables` are all tables that hold blocks; checks them against the reference counts.
  Status check_invariants(std::span<const BlockTable* const> tables) const;

 private:
  bool matches_next(BlockTable& table, std::span<const TokenId> tokens, uint32_t index,
                    const PrefixPlace& place, PrefixCache::Entry& entry) const;
  const Hash128& key_of(BlockTable& table, std::span<const TokenId> tokens, uint32_t index) const;
  void note(KvEvent::Kind kind, BlockId block);

  PagedBlockManager manager_;
  PrefixCache cache_;
  bool caching_;
  uint64_t evictions_ = 0;
  size_t most_events_;  // 0: none are noted
  std::vector<KvEvent> events_;
};

}  // namespace skein
