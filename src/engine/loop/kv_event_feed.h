// KvEventFeed: what comes into a model's prefix cache and leaves it, from its engine to whoever
// tells others (server/kv_events).
//
// The engine never waits: its side copies what a step has changed into memory that is there. Where
// the other side is so late that it would not fit, what waits is replaced by all that is in the
// cache now, behind a kCleared; so there is never a gap. Each side is one thread's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "sched/scheduler.h"

namespace skein {

struct KvNotice {
  enum class Kind : uint8_t { kCleared, kStored, kRemoved };
  Kind kind = Kind::kCleared;
  uint64_t hash = 0;  // below 2^63
  // Of what was stored:
  uint64_t parent_hash = 0;  // 0: it is the first block of its text
  Hash128 salt;
  std::array<TokenId, kBlockTokens> tokens{};
};

class KvEventFeed {
 public:
  // ---- the engine's side ----
  // A new engine: nothing is in its cache. Throws std::bad_alloc.
  void begin(uint32_t pool_blocks);
  // What the scheduler's latest step has changed. Allocates nothing.
  void add(const ContinuousBatchingScheduler& scheduler);
  // The engine has ended, and its cache with it.
  void end();

  // ---- the other side ----
  // `wake` is called whenever there is something to take after there was nothing; it must not
  // block. Empty: nobody takes any more.
  void set_wake(std::function<void()> wake);
  // All that waits, in order; valid until the next call. May throw std::bad_alloc, and then nothing
  // was taken.
  std::span<const KvNotice> take();

  // How often what waited was replaced.
  uint64_t resets() const { return resets_; }

 private:
  void clear();  // mutex_
  void push_stored(const PrefixCache::Contents& contents);
  void announce_all(const ContinuousBatchingScheduler& scheduler);

  std::mutex mutex_;
  size_t capacity_ = 0;
  std::vector<KvNotice> pending_;
  std::vector<BlockId> order_;  // of announce_all, kept for its memory
  std::function<void()> wake_;
  std::vector<KvNotice> taken_;  // the other side's
  std::atomic<uint64_t> resets_{0};
};

}  // namespace skein
