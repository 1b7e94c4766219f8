// Whoever applies the events of the prefix cache must know exactly what is in there, after every
// plan and every commit, and must never hold a block without all that comes before it.
#include "sim/simulator.h"

namespace skein::sim {

void Simulator::check_kv_events() {
  for (const KvEvent& event : scheduler_->kv_events()) {
    event.kind == KvEvent::Kind::kStored ? copy_stored(event) : copy_removed(event);
    if (failed()) return;
  }
  scheduler_->clear_kv_events();
  uint32_t cached = 0;
  for (uint32_t i = 0; i < scheduler_->pool_blocks(); ++i) {
    const BlockId id{i};
    if (!scheduler_->is_cached(id)) continue;
    ++cached;
    const PrefixCache::Contents contents = scheduler_->cached_contents(id);
    const auto it = cache_copy_.find(contents.hash);
    if (it == cache_copy_.end() || it->second.block != id ||
        it->second.parent_hash != contents.parent_hash) {
      return fail("block {} is cached, which no event says", i);
    }
  }
  if (cached != cache_copy_.size())
    fail("{} blocks are cached, and {} by their events", cached, cache_copy_.size());
}

void Simulator::copy_stored(const KvEvent& event) {
  if (!scheduler_->is_cached(event.block))
    return fail("an event says that block {} is cached", event.block.value);
  const PrefixCache::Contents contents = scheduler_->cached_contents(event.block);
  const uint64_t parent = contents.parent_hash;
  if (contents.hash != event.hash || contents.hash > INT64_MAX)
    return fail("block {} has one hash and another in its event", event.block.value);
  if (parent != 0) {
    const auto it = cache_copy_.find(parent);
    if (it == cache_copy_.end())
      return fail("block {} was stored without its parent", event.block.value);
    ++it->second.children;
  }
  if (!cache_copy_.emplace(event.hash, CopiedBlock{event.block, parent, 0}).second)
    return fail("the contents of block {} were stored twice", event.block.value);
  saw(Path::k_event_stored);
}

void Simulator::copy_removed(const KvEvent& event) {
  const auto it = cache_copy_.find(event.hash);
  if (it == cache_copy_.end() || it->second.block != event.block)
    return fail("block {} was removed and had not been stored", event.block.value);
  if (it->second.children != 0)
    return fail("block {} was removed before its children", event.block.value);
  if (it->second.parent_hash != 0) --cache_copy_.at(it->second.parent_hash).children;
  cache_copy_.erase(it);
  saw(Path::k_event_removed);
}

}  // namespace skein::sim
