// LimitStore: what keys have left of their minute, where servers share a store. Each key has one
// pair of buckets for all of them, filled by the database's clock. The arithmetic is that of
// auth/rate_limiter.h, in SQL.
//
// Thread-safety: any thread but the store's; admit() waits for the store, for a second at most,
// settle() does not.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "server/store/store_thread.h"

namespace skein {

struct KeyLimits {
  uint64_t requests_per_minute = 0;  // 0: none
  uint64_t tokens_per_minute = 0;    // 0: none
};

struct BucketAnswer {
  TimeUs requests_wait_us = 0;  // both 0: it is admitted
  TimeUs tokens_wait_us = 0;
  uint64_t reserved = 0;
};

class LimitStore {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};

  explicit LimitStore(StoreThread& thread) : thread_(thread) {}

  // Takes so many requests and tokens (with `takes_all`: all that are left, and at least those), or
  // nothing. kUnavailable: nobody can say; what was asked for may be taken all the same.
  Result<BucketAnswer> admit(const std::string& key, const KeyLimits& limits, uint64_t tokens,
                             bool takes_all, uint64_t requests);
  // So many tokens more (or, where it is negative, fewer) were used than were taken.
  void settle(const std::string& key, const KeyLimits& limits, int64_t more);

 private:
  StoreThread& thread_;
};

}  // namespace skein
