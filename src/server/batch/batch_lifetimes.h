// BatchLifetimes: how much of their lifetimes open batches have used up.
//
// A batch expires when a server has run for its lifetime since it was made: time is taken from the
// clock, which no calendar moves, and written down about twice a minute. Time in which no server
// runs is not counted.
//
// Thread-safety: one thread, which waits for the store.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "server/store/store.h"

namespace skein {

class BatchLifetimes {
 public:
  // Both outlive it.
  BatchLifetimes(Store& store, const Clock& clock) : store_(store), clock_(clock) {}

  // Adds what has passed to the batches that have not ended, when it is time to; these are all that
  // are open. As BatchStore::renew().
  Status count(std::vector<OpenBatch>& open);
  TimeUs next_count_us() const;  // kNever: nothing is counted
  // When the batch expires; it was counted.
  TimeUs end_us(const OpenBatch& batch) const;

 private:
  Store& store_;
  const Clock& clock_;
  std::map<int64_t, TimeUs> counted_until_us_;  // by seq: up to when served_s counts
};

}  // namespace skein
