// Workers: items of one op spread over the compute pool, each with the scratch of a slot.
//
// A slot is used by one thread at a time, so what belongs to a slot needs no lock. Which slot gets
// which item is not determined; results must not depend on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "backend/host/flush_denormals.h"
#include "base/check.h"
#include "base/compute_pool.h"

namespace skein::cpu {

// A part of an op: run(slot, item) for every item in [0, items). `work` is what they cost together,
// in elements read or multiplied. What `run` refers to must outlive the op.
struct Phase {
  template <class Fn>
  Phase(size_t items, size_t work, const Fn& fn)
      : items(items),
        work(work),
        context(&fn),
        call([](const void* context, size_t slot, size_t i) {
          (*static_cast<const Fn*>(context))(slot, i);
        }) {}

  void run(size_t slot, size_t item) const { call(context, slot, item); }

  size_t items, work;

 private:
  const void* context;
  void (*call)(const void* context, size_t slot, size_t item);
};

class Workers {
 public:
  explicit Workers(ComputePool& pool) : pool_(pool) {}

  size_t slots() const { return pool_.threads(); }

  // All items of a phase before any of the next, with subnormals flushed. What costs less than
  // waking a worker the caller does alone.
  void run(std::initializer_list<Phase> phases) {
    std::span<const Phase> left(phases.begin(), phases.size());
    while (!left.empty() && !worth_sharing(left.front())) {
      const FlushDenormals flush;
      for (size_t item = 0; item < left.front().items; ++item) left.front().run(0, item);
      left = left.subspan(1);
    }
    if (!left.empty()) share(left);
  }

  template <class Fn>
  void run(size_t items, size_t work, const Fn& fn) {
    run({Phase(items, work, fn)});
  }

 private:
  static constexpr size_t kWorthSharing = 16'384;
  static constexpr size_t kMostPhases = 4;
  // Items are taken some at a time where there are many.
  static constexpr size_t kTurnsPerSlot = 32;
  static constexpr int kSpins = 4000;

  struct alignas(64) Progress {
    std::atomic<size_t> next{0}, done{0};
  };

  bool worth_sharing(const Phase& phase) const {
    return phase.items > 1 && slots() > 1 && phase.work >= kWorthSharing;
  }

  void share(std::span<const Phase> phases) {
    SKEIN_CHECK(phases.size() <= kMostPhases, "an op of {} phases", phases.size());
    Progress progress[kMostPhases];
    pool_.run(slots(), [&](size_t slot) {
      const FlushDenormals flush;
      for (size_t i = 0; i < phases.size(); ++i) {
        take_items(phases[i], progress[i], slot);
        if (i + 1 < phases.size()) await_end(phases[i], progress[i]);
      }
    });
  }

  void take_items(const Phase& phase, Progress& progress, size_t slot) const {
    const size_t grain = 1 + phase.items / (slots() * kTurnsPerSlot);
    while (true) {
      const size_t first = progress.next.fetch_add(grain, std::memory_order_relaxed);
      if (first >= phase.items) return;
      const size_t end = first + grain < phase.items ? first + grain : phase.items;
      for (size_t item = first; item < end; ++item) phase.run(slot, item);
      progress.done.fetch_add(end - first, std::memory_order_release);
    }
  }

  // A worker that holds items is at work on them.
  static void await_end(const Phase& phase, const Progress& progress) {
    for (int i = 0; progress.done.load(std::memory_order_acquire) < phase.items; ++i) {
      ComputePool::spin(i < kSpins);
    }
  }

  ComputePool& pool_;
};

}  // namespace skein::cpu
