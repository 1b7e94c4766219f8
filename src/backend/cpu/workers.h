// Workers: items of one op spread over the compute pool, each with the scratch of a slot.
//
// A slot is used by one thread at a time, so what belongs to a slot needs no lock. Which slot gets
// which item is not determined; results must not depend on it.
#pragma once

#include <atomic>
#include <cstddef>

#include "backend/flush_denormals.h"
#include "base/compute_pool.h"

namespace skein::cpu {

class Workers {
 public:
  explicit Workers(ComputePool& pool) : pool_(pool) {}

  size_t slots() const { return pool_.threads(); }

  // fn(slot, item) for every item in [0, items), with subnormals flushed. `work` is what they cost
  // together, in elements read or multiplied: below what waking a worker costs the caller does it
  // alone.
  template <class Fn>
  void run(size_t items, size_t work, const Fn& fn) {
    if (items < 2 || slots() == 1 || work < kWorthSharing) {
      const FlushDenormals flush;
      for (size_t item = 0; item < items; ++item) fn(size_t{0}, item);
      return;
    }
    std::atomic<size_t> next{0};
    pool_.run(slots(), [&](size_t slot) {
      const FlushDenormals flush;
      while (true) {
        const size_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= items) return;
        fn(slot, item);
      }
    });
  }

 private:
  static constexpr size_t kWorthSharing = 16'384;

  ComputePool& pool_;
};

}  // namespace skein::cpu
