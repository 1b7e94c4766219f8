#include "kv/paged_block_manager.h"

namespace skein {

PagedBlockManager::PagedBlockManager(uint32_t capacity) : blocks_(capacity), free_(capacity) {
  for (uint32_t i = 0; i < capacity; ++i) link(BlockId{i}, tail_, kNoBlock);
}

KVBlock& PagedBlockManager::at(BlockId id) {
  SKEIN_CHECK(id.value < blocks_.size(), "block {} of {}", id.value, blocks_.size());
  return blocks_[id.value];
}

const KVBlock& PagedBlockManager::at(BlockId id) const {
  SKEIN_CHECK(id.value < blocks_.size(), "block {} of {}", id.value, blocks_.size());
  return blocks_[id.value];
}

PagedBlockManager::Taken PagedBlockManager::take() {
  SKEIN_CHECK(head_ != kNoBlock, "take() from an empty list of {} blocks", capacity());
  const BlockId id = head_;
  KVBlock& block = at(id);
  unlink(id);
  const bool evicted = block.cached;
  --(evicted ? idle_cached_ : free_);
  block.cached = false;
  block.refs = 1;
  return {id, evicted};
}

void PagedBlockManager::acquire(BlockId id) {
  KVBlock& block = at(id);
  SKEIN_CHECK(block.refs > 0 || block.cached, "acquire of free block {}", id.value);
  if (block.refs++ == 0) {
    unlink(id);
    --idle_cached_;
  }
}

void PagedBlockManager::release(BlockId id) {
  KVBlock& block = at(id);
  SKEIN_CHECK(block.refs > 0, "release of block {} that nobody holds", id.value);
  if (--block.refs > 0) return;
  if (block.cached) {
    link(id, tail_, kNoBlock);
    ++idle_cached_;
  } else {
    link(id, kNoBlock, head_);
    ++free_;
  }
}

void PagedBlockManager::mark_cached(BlockId id) {
  KVBlock& block = at(id);
  SKEIN_CHECK(block.refs > 0, "block {} is published but nobody holds it", id.value);
  block.cached = true;
}

void PagedBlockManager::link(BlockId id, BlockId prev, BlockId next) {
  KVBlock& block = blocks_[id.value];
  block.prev = prev;
  block.next = next;
  (prev == kNoBlock ? head_ : blocks_[prev.value].next) = id;
  (next == kNoBlock ? tail_ : blocks_[next.value].prev) = id;
}

void PagedBlockManager::unlink(BlockId id) {
  KVBlock& block = blocks_[id.value];
  (block.prev == kNoBlock ? head_ : blocks_[block.prev.value].next) = block.next;
  (block.next == kNoBlock ? tail_ : blocks_[block.next.value].prev) = block.prev;
  block.prev = block.next = kNoBlock;
}

Status PagedBlockManager::check_invariants() const {
  uint32_t listed = 0;
  uint32_t cached = 0;
  for (BlockId id = head_; id != kNoBlock; id = blocks_[id.value].next) {
    const KVBlock& block = at(id);
    if (block.refs != 0)
      return internal_error("block {} is in the free list with {} references", id.value,
                            block.refs);
    if (!block.cached && cached > 0)
      return internal_error("free block {} stands behind a cached one", id.value);
    cached += block.cached ? 1 : 0;
    if (++listed > capacity())
      return internal_error("the free list of {} blocks has a cycle", capacity());
  }
  uint32_t held = 0;
  for (const KVBlock& block : blocks_) held += block.refs > 0 ? 1 : 0;
  if (listed != available() || cached != idle_cached_) {
    return internal_error("the free list has {} blocks, {} cached; the counts say {} and {}",
                          listed, cached, available(), idle_cached_);
  }
  if (held + listed != capacity()) {
    return internal_error("{} held + {} listed blocks in a pool of {}", held, listed, capacity());
  }
  return {};
}

}  // namespace skein
