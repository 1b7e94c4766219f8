// Requests and tokens a minute, per key: two token buckets that hold a minute's worth.
//
//   const Admission admission = limiter.admit(who, prompt_tokens + max_tokens);
//   if (!admission.admitted()) refuse(429, admission.retry_after_us);
//   ...
//   limiter.settle(who, admission.reserved, tokens_really_used);
//
// Admission takes what the request may need, so no two requests count on the same tokens; one that
// cannot say how many it needs takes all that are left. settle gives back or charges the
// difference: a bucket may go below zero, and later requests wait until the debt is paid. A request
// that needs more than a whole minute's tokens is refused for good.
//
// Where servers share a store, the buckets are there (store/limit_store.h), one pair for all of
// them; admit() then waits for the store, so it is for workers. A refusal is remembered for a
// moment, so that a flood ends here. While the store does not answer within a second, each server
// admits its part of the limit by itself.
//
// Thread-safety: any thread. Limits are read from the principal each time, so changes of a key
// count at once; the buckets are those of the key's id, so a new secret does not refill them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "server/auth/principal.h"
#include "server/store/store.h"

namespace skein {

// Integer arithmetic: nothing is lost to rounding, however often it is asked.
class TokenBucket {
 public:
  // Full at first.
  TokenBucket(uint64_t per_minute, TimeUs now_us);

  // Microseconds until `amount` can be taken; 0: now. Of no use beyond a full bucket.
  TimeUs wait_us(uint64_t amount) const;
  uint64_t left() const;            // whole tokens; 0 when it is below
  void take(uint64_t amount);       // may leave it below zero
  void give_back(uint64_t amount);  // never above full
  // Fills it up to this moment, at this rate. A new rate keeps what was used, not what was left.
  void refill(uint64_t per_minute, TimeUs now_us);

 private:
  int64_t capacity() const;

  uint64_t per_minute_;
  int64_t level_;  // in tokens x microseconds of a minute
  TimeUs at_us_;
};

enum class RateLimit : uint8_t { kNone, kRequests, kTokens };

struct Admission {
  RateLimit exceeded = RateLimit::kNone;
  TimeUs retry_after_us = 0;
  uint64_t reserved = 0;    // tokens that were taken; 0 for a key without a limit of tokens
  bool never = false;       // `wanted` is more than `per_minute`: no time is late enough
  uint64_t wanted = 0;      // tokens
  uint64_t per_minute = 0;  // tokens
  bool admitted() const { return exceeded == RateLimit::kNone; }
};

class RateLimiter {
 public:
  // `shared` outlives it; null: the buckets are this server's own.
  explicit RateLimiter(const Clock& clock, Store* shared = nullptr)
      : clock_(clock), shared_(shared) {}

  // kAll: `tokens` are the least that it needs, and it takes all that are left.
  enum class Take : uint8_t { kExactly, kAll };
  // Takes one request and its tokens, or nothing. `requests` 0: the request was taken before.
  Admission admit(const Principal& who, uint64_t tokens, Take take = Take::kExactly,
                  uint64_t requests = 1);
  // The request that was admitted with `reserved` tokens used `used`.
  void settle(const Principal& who, uint64_t reserved, uint64_t used);

 private:
  struct Buckets {
    TokenBucket requests;
    TokenBucket tokens;
  };
  struct Refusal {
    TimeUs until_us = 0;  // remembered
    TimeUs retry_us = 0;  // when it may come again
    uint64_t tokens = 0;  // that it asked for
    RateLimit exceeded = RateLimit::kNone;
  };
  KeyLimits limits_of(const Principal& who) const;  // that this server may give by itself
  Buckets& refilled(const Principal& who);          // mutex_ held
  Admission admit_here(const Principal& who, uint64_t tokens, Take take, uint64_t requests);
  Result<Admission> admit_shared(const Principal& who, uint64_t tokens, Take take,
                                 uint64_t requests);

  const Clock& clock_;
  Store* const shared_;
  std::atomic<TimeUs> silent_until_us_{0};  // the store is not asked before
  std::mutex mutex_;
  std::unordered_map<std::string, Refusal> refusals_;  // mutex_; the latest of a key
  std::unordered_map<std::string, Buckets> buckets_;   // mutex_; as many as there are keys
};

}  // namespace skein
