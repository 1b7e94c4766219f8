#include "engine/loop/kv_event_feed.h"

#include <algorithm>

namespace skein {

void KvEventFeed::begin(uint32_t pool_blocks) {
  const std::lock_guard lock(mutex_);
  // A kCleared, all blocks, and what changes while those are being sent.
  const size_t capacity = 2 * size_t{pool_blocks} + 1;
  pending_.reserve(capacity);
  order_.reserve(pool_blocks);
  capacity_ = capacity;
  clear();
}

void KvEventFeed::end() {
  const std::lock_guard lock(mutex_);
  clear();
}

// Whatever waits is about a cache that is no more. `capacity_` has room for one at least.
void KvEventFeed::clear() {
  const bool was_empty = pending_.empty();
  pending_.clear();
  if (capacity_ == 0) return;
  pending_.emplace_back();
  if (was_empty && wake_) wake_();
}

void KvEventFeed::add(const ContinuousBatchingScheduler& scheduler) {
  const std::span<const KvEvent> events = scheduler.kv_events();
  if (events.empty()) return;
  const std::lock_guard lock(mutex_);
  const bool was_empty = pending_.empty();
  if (pending_.size() + events.size() > capacity_) {
    announce_all(scheduler);
  } else {
    for (const KvEvent& event : events) {
      if (event.kind == KvEvent::Kind::kStored) {
        push_stored(scheduler.cached_contents(event.block));
      } else {
        pending_.push_back({KvNotice::Kind::kRemoved, event.hash, 0, {}, {}});
      }
    }
  }
  if (was_empty && wake_) wake_();
}

void KvEventFeed::push_stored(const PrefixCache::Contents& contents) {
  KvNotice& notice = pending_.emplace_back();
  notice.kind = KvNotice::Kind::kStored;
  notice.hash = contents.hash;
  notice.parent_hash = contents.parent_hash;
  notice.salt = contents.salt;
  std::copy(contents.tokens.begin(), contents.tokens.end(), notice.tokens.begin());
}

// Parents before their children: entries are numbered in the order in which they came.
void KvEventFeed::announce_all(const ContinuousBatchingScheduler& scheduler) {
  ++resets_;
  pending_.clear();
  pending_.emplace_back();
  order_.clear();
  for (uint32_t i = 0; i < scheduler.pool_blocks(); ++i) {
    if (scheduler.is_cached(BlockId{i})) order_.push_back(BlockId{i});
  }
  std::sort(order_.begin(), order_.end(), [&](BlockId a, BlockId b) {
    return scheduler.cached_contents(a).node < scheduler.cached_contents(b).node;
  });
  for (const BlockId id : order_) push_stored(scheduler.cached_contents(id));
}

void KvEventFeed::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  if (wake_ && !pending_.empty()) wake_();
}

std::span<const KvNotice> KvEventFeed::take() {
  const std::lock_guard lock(mutex_);
  taken_.clear();
  taken_.reserve(capacity_);  // it is the engine's next
  taken_.swap(pending_);
  return taken_;
}

}  // namespace skein
