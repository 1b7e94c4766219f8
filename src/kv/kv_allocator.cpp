#include "kv/kv_allocator.h"

#include "base/check.h"

namespace skein {
namespace {

BlockTokens block_tokens(std::span<const TokenId> tokens, uint32_t index) {
  return BlockTokens(tokens.subspan(size_t{index} * kBlockTokens, kBlockTokens));
}

}  // namespace

KvAllocator::KvAllocator(const Config& config)
    : manager_(config.blocks),
      cache_(config.blocks, config.hash_key),
      caching_(config.prefix_cache),
      // Between two publish() a block leaves the cache at most once, and then comes in once.
      most_events_(config.events ? 2 * size_t{config.blocks} : 0) {
  events_.reserve(most_events_);
}

void KvAllocator::note(KvEvent::Kind kind, BlockId block) {
  if (most_events_ == 0) return;
  SKEIN_CHECK(events_.size() < most_events_, "{} events of the prefix cache were not taken",
              events_.size());
  events_.push_back({kind, block, cache_.contents(block).hash});
}

bool KvAllocator::grow(BlockTable& table, uint64_t tokens) {
  const uint64_t wanted = blocks_for(tokens);
  if (wanted <= table.size()) return true;
  if (wanted - table.size() > manager_.available()) return false;
  while (table.size() < wanted) {
    const auto [id, evicted] = manager_.take();
    if (evicted) {
      note(KvEvent::Kind::kRemoved, id);
      cache_.erase(id);
      ++evictions_;
    }
    table.blocks_.push_back(id);
  }
  return true;
}

const Hash128& KvAllocator::key_of(BlockTable& table, std::span<const TokenId> tokens,
                                   uint32_t index) const {
  while (table.keys_.size() <= index) {
    const auto next = static_cast<uint32_t>(table.keys_.size());
    const Hash128& parent = next == 0 ? table.place_.salt : table.keys_.back();
    table.keys_.push_back(cache_.chain_key(parent, block_tokens(tokens, next)));
  }
  return table.keys_[index];
}

Hash128 KvAllocator::next_key(BlockTable& table, std::span<const TokenId> tokens) const {
  return key_of(table, tokens, table.linked_);
}

bool KvAllocator::matches_next(BlockTable& table, std::span<const TokenId> tokens, uint32_t index,
                               const PrefixPlace& place, PrefixCache::Entry& entry) const {
  if (!shares(table) || (uint64_t{index} + 1) * kBlockTokens > tokens.size()) return false;
  const auto found = cache_.find(key_of(table, tokens, index), place, block_tokens(tokens, index));
  if (found) entry = *found;
  return found.has_value();
}

void KvAllocator::match(BlockTable& table, std::span<const TokenId> tokens,
                        std::vector<BlockId>& hits) const {
  hits.clear();
  PrefixPlace place = table.place_;
  PrefixCache::Entry entry;
  for (uint32_t i = table.linked_; matches_next(table, tokens, i, place, entry); ++i) {
    hits.push_back(entry.block);
    place.parent = entry.node;
  }
}

uint32_t KvAllocator::take_cached(BlockTable& table, std::span<const TokenId> tokens) {
  SKEIN_CHECK(table.linked_ == table.size(), "take_cached after {} of {} blocks", table.linked_,
              table.size());
  const uint32_t before = table.linked_;
  PrefixCache::Entry entry;
  while (matches_next(table, tokens, table.linked_, table.place_, entry)) {
    manager_.acquire(entry.block);
    table.blocks_.push_back(entry.block);
    table.place_.parent = entry.node;
    ++table.linked_;
  }
  return table.linked_ - before;
}

void KvAllocator::publish(BlockTable& table, std::span<const TokenId> tokens, uint64_t computed,
                          bool reading) {
  if (!shares(table)) return;
  for (; (uint64_t{table.linked_} + 1) * kBlockTokens <= computed; ++table.linked_) {
    const uint32_t index = table.linked_;
    const BlockId block = table.blocks_[index];
    const Hash128& key = key_of(table, tokens, index);
    const uint64_t parent = index == 0 ? 0 : content_hash(table.keys_[index - 1]);
    const auto [there, inserted] =
        cache_.insert(key, parent, table.place_, block_tokens(tokens, index), block);
    if (inserted) {
      manager_.mark_cached(block);
      note(KvEvent::Kind::kStored, block);
    } else {
      if (reading) return;
      manager_.acquire(there.block);
      manager_.release(block);
      table.blocks_[index] = there.block;
    }
    table.place_.parent = there.node;
  }
}

void KvAllocator::release(BlockTable& table) {
  while (!table.blocks_.empty()) {
    manager_.release(table.blocks_.back());
    table.blocks_.pop_back();
  }
  table.place_.parent = kPrefixRoot;
  table.linked_ = 0;
}

Status KvAllocator::check_invariants(std::span<const BlockTable* const> tables) const {
  SKEIN_TRY(manager_.check_invariants());
  std::vector<uint32_t> named(capacity(), 0);
  for (const BlockTable* table : tables) {
    for (const BlockId id : table->blocks()) ++named[id.value];
  }
  uint32_t cached = 0;
  for (uint32_t i = 0; i < capacity(); ++i) {
    const BlockId id{i};
    if (manager_.refs(id) != named[i]) {
      return internal_error("block {} has {} references but {} tables name it", i,
                            manager_.refs(id), named[i]);
    }
    if (manager_.cached(id) != cache_.contains(id)) {
      return internal_error("block {} is {}cached, but the prefix cache {} it", i,
                            manager_.cached(id) ? "" : "not ",
                            cache_.contains(id) ? "has" : "lacks");
    }
    cached += manager_.cached(id) ? 1 : 0;
  }
  if (cached != cache_.size())
    return internal_error("{} blocks are cached, the prefix cache has {}", cached, cache_.size());
  return {};
}

}  // namespace skein
