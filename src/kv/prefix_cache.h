// PrefixCache: finds the block that already holds the KV of some tokens after some prefix.
//
// An entry is one full block in the context of its parent entry; the first block of a prompt hangs
// on its tenant's salt. The keyed hash of (parent key, tokens) only picks a bucket. What decides is
// identity: same salt, same parent entry, same 32 tokens. So a collision costs a comparison and can
// never serve someone else's KV, whatever the hash.
//
// The cache holds no references and allocates nothing after construction: there is at most one
// entry per block of the pool. Single-threaded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"

namespace skein {

using BlockTokens = std::span<const TokenId, kBlockTokens>;

// Identity of an entry for as long as it is cached; never used twice. The root is no entry.
using PrefixNode = StrongId<struct PrefixNodeTag, uint64_t>;
inline constexpr PrefixNode kPrefixRoot{0};

// Where a block hangs: in which tenant's tree, and below which entry.
struct PrefixPlace {
  Hash128 salt;
  PrefixNode parent = kPrefixRoot;
  friend bool operator==(const PrefixPlace&, const PrefixPlace&) = default;
};

// How others name what a block holds, with all that comes before it: of a chain key what fits a
// signed 64-bit integer. It is the same wherever the key of the hash is.
inline uint64_t content_hash(const Hash128& chain_key) {
  return chain_key.low & (UINT64_MAX >> 1);
}

class PrefixCache {
 public:
  PrefixCache(uint32_t pool_blocks, HashKey key);

  // The key of a block after its parent's key (the salt for a first block). A pure function of the
  // contents, so it can be computed once per request.
  Hash128 chain_key(const Hash128& parent_key, BlockTokens tokens) const;

  struct Entry {
    BlockId block;
    PrefixNode node;
  };
  std::optional<Entry> find(const Hash128& key, const PrefixPlace& place, BlockTokens tokens) const;

  // Makes `block` findable and returns its entry; if the same contents are cached already, returns
  // that entry and leaves `block` as it is (inserted == false). `parent_hash`: of the entry
  // that it hangs on, 0 for a first block.
  struct Inserted {
    Entry entry;
    bool inserted;
  };
  Inserted insert(const Hash128& key, uint64_t parent_hash, const PrefixPlace& place,
                  BlockTokens tokens, BlockId block);

  // The block is about to be used for something else.
  void erase(BlockId block);

  bool contains(BlockId block) const { return entries_[block.value].node != kPrefixRoot; }

  // What a block that is in here holds. A node is greater than those of its parents.
  struct Contents {
    PrefixNode node;
    uint64_t hash = 0;
    uint64_t parent_hash = 0;  // 0: it is a first block
    Hash128 salt;
    BlockTokens tokens;
  };
  Contents contents(BlockId block) const;
  uint32_t size() const { return size_; }

 private:
  struct Slot {
    PrefixNode node = kPrefixRoot;  // kPrefixRoot: no entry
    PrefixPlace place;
    uint64_t hash = 0;
    uint64_t parent_hash = 0;
    uint32_t bucket = 0;
    BlockId next = kNoBlock;  // in the bucket
    std::array<TokenId, kBlockTokens> tokens{};
  };

  uint32_t bucket_of(const Hash128& key) const { return static_cast<uint32_t>(key.low) & mask_; }

  HashKey key_;
  uint32_t mask_;
  std::vector<BlockId> buckets_;
  std::vector<Slot> entries_;  // by BlockId
  uint64_t next_node_ = 1;
  uint32_t size_ = 0;
};

}  // namespace skein
