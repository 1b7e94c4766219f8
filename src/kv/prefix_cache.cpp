#include "kv/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace skein {

PrefixCache::PrefixCache(uint32_t pool_blocks, HashKey key)
    : key_(key),
      mask_(std::bit_ceil(std::max(pool_blocks, 1U)) - 1),
      buckets_(mask_ + size_t{1}, kNoBlock),
      entries_(pool_blocks) {}

Hash128 PrefixCache::chain_key(const Hash128& parent_key, BlockTokens tokens) const {
  std::array<std::byte, sizeof(Hash128) + kBlockTokens * sizeof(TokenId)> bytes;
  std::memcpy(bytes.data(), &parent_key, sizeof(Hash128));
  std::memcpy(bytes.data() + sizeof(Hash128), tokens.data(), tokens.size_bytes());
  return keyed_hash(key_, bytes);
}

std::optional<PrefixCache::Entry> PrefixCache::find(const Hash128& key, const PrefixPlace& place,
                                                    BlockTokens tokens) const {
  for (BlockId id = buckets_[bucket_of(key)]; id != kNoBlock; id = entries_[id.value].next) {
    const Slot& slot = entries_[id.value];
    if (slot.place == place && std::equal(tokens.begin(), tokens.end(), slot.tokens.begin())) {
      return Entry{id, slot.node};
    }
  }
  return std::nullopt;
}

PrefixCache::Inserted PrefixCache::insert(const Hash128& key, uint64_t parent_hash,
                                          const PrefixPlace& place, BlockTokens tokens,
                                          BlockId block) {
  if (const auto existing = find(key, place, tokens)) return {*existing, false};
  Slot& slot = entries_[block.value];
  SKEIN_CHECK(slot.node == kPrefixRoot, "block {} is in the prefix cache already", block.value);
  slot.node = PrefixNode{next_node_++};
  slot.place = place;
  slot.hash = content_hash(key);
  slot.parent_hash = parent_hash;
  slot.bucket = bucket_of(key);
  slot.next = buckets_[slot.bucket];
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  buckets_[slot.bucket] = block;
  ++size_;
  return {{block, slot.node}, true};
}

PrefixCache::Contents PrefixCache::contents(BlockId block) const {
  const Slot& slot = entries_[block.value];
  SKEIN_CHECK(slot.node != kPrefixRoot, "block {} is not in the prefix cache", block.value);
  return {slot.node, slot.hash, slot.parent_hash, slot.place.salt, slot.tokens};
}

void PrefixCache::erase(BlockId block) {
  Slot& slot = entries_[block.value];
  SKEIN_CHECK(slot.node != kPrefixRoot, "block {} is not in the prefix cache", block.value);
  BlockId* at = &buckets_[slot.bucket];
  while (*at != block) at = &entries_[at->value].next;
  *at = slot.next;
  slot.node = kPrefixRoot;
  --size_;
}

}  // namespace skein
