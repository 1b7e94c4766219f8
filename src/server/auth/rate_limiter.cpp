#include "server/auth/rate_limiter.h"

#include <algorithm>

namespace skein {
namespace {

constexpr int64_t kUnitsPerToken = 60 * kUsPerSecond;
// Beyond it a limit is none: it keeps the arithmetic within 64 bits.
constexpr uint64_t kMaxTokens = uint64_t{1} << 30;
// Debts are kept, as far as 64 bits go: 76 thousand million tokens.
constexpr int64_t kLeastLevel = -(int64_t{1} << 62);

// For so long nobody is asked again about a key that was refused.
constexpr TimeUs kRememberedUs = 250 * kUsPerMs;
// For so long nobody is asked after a store that did not answer: each who asks waits for it.
constexpr TimeUs kSilentUs = 2 * kUsPerSecond;

int64_t units(uint64_t tokens) {
  return static_cast<int64_t>(std::min(tokens, kMaxTokens)) * kUnitsPerToken;
}

}  // namespace

TokenBucket::TokenBucket(uint64_t per_minute, TimeUs now_us)
    : per_minute_(std::min(per_minute, kMaxTokens)), level_(units(per_minute)), at_us_(now_us) {}

int64_t TokenBucket::capacity() const {
  return units(per_minute_);
}

TimeUs TokenBucket::wait_us(uint64_t amount) const {
  if (per_minute_ == 0) return 0;
  const int64_t missing = units(amount) - level_;
  if (missing <= 0) return 0;
  const auto rate = static_cast<int64_t>(per_minute_);  // units a microsecond
  return (missing + rate - 1) / rate;
}

void TokenBucket::take(uint64_t amount) {
  level_ = std::max(level_ - units(amount), kLeastLevel);
}

uint64_t TokenBucket::left() const {
  return level_ > 0 ? static_cast<uint64_t>(level_ / kUnitsPerToken) : 0;
}

void TokenBucket::give_back(uint64_t amount) {
  level_ = std::min(level_ + units(amount), capacity());
}

void TokenBucket::refill(uint64_t per_minute, TimeUs now_us) {
  per_minute = std::min(per_minute, kMaxTokens);
  if (per_minute != per_minute_) {
    const int64_t used = capacity() - level_;
    per_minute_ = per_minute;
    level_ = capacity() - used;
  }
  const TimeUs elapsed_us = std::max<TimeUs>(0, now_us - at_us_);
  at_us_ = std::max(at_us_, now_us);
  if (per_minute_ == 0) {
    level_ = 0;
    return;
  }
  const auto rate = static_cast<int64_t>(per_minute_);
  const bool full = elapsed_us >= (capacity() - level_) / rate + 1;
  level_ = full ? capacity() : std::min(capacity(), level_ + elapsed_us * rate);
}

KeyLimits RateLimiter::limits_of(const Principal& who) const {
  const auto nodes = static_cast<uint64_t>(shared_ == nullptr ? 1 : shared_->nodes());
  const auto part = [nodes](uint64_t limit) {
    return limit == 0 ? 0 : std::max<uint64_t>(1, limit / nodes);
  };
  return {part(who.requests_per_minute), part(who.tokens_per_minute)};
}

RateLimiter::Buckets& RateLimiter::refilled(const Principal& who) {
  const TimeUs now_us = clock_.now();
  const KeyLimits limits = limits_of(who);
  const auto [entry, added] =
      buckets_.try_emplace(who.key_id, Buckets{TokenBucket(limits.requests_per_minute, now_us),
                                               TokenBucket(limits.tokens_per_minute, now_us)});
  entry->second.requests.refill(limits.requests_per_minute, now_us);
  entry->second.tokens.refill(limits.tokens_per_minute, now_us);
  return entry->second;
}

Admission RateLimiter::admit(const Principal& who, uint64_t tokens, Take take, uint64_t requests) {
  if (who.tokens_per_minute != 0 && tokens > who.tokens_per_minute) {
    return {.exceeded = RateLimit::kTokens,
            .never = true,
            .wanted = tokens,
            .per_minute = who.tokens_per_minute};
  }
  if (who.requests_per_minute == 0 && who.tokens_per_minute == 0) return {};
  if (shared_ != nullptr && shared_->away_s() == 0 && clock_.now() >= silent_until_us_) {
    if (const auto admission = admit_shared(who, tokens, take, requests); admission.ok()) {
      return *admission;
    }
    silent_until_us_ = clock_.now() + kSilentUs;
  }
  return admit_here(who, tokens, take, requests);
}

Result<Admission> RateLimiter::admit_shared(const Principal& who, uint64_t tokens, Take take,
                                            uint64_t requests) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = refusals_.find(who.key_id);
    const TimeUs now_us = clock_.now();
    if (found != refusals_.end() && now_us < found->second.until_us &&
        (found->second.exceeded == RateLimit::kRequests ? requests > 0
                                                        : tokens >= found->second.tokens)) {
      return Admission{.exceeded = found->second.exceeded,
                       .retry_after_us = std::max<TimeUs>(1, found->second.retry_us - now_us)};
    }
  }
  SKEIN_ASSIGN(
      const BucketAnswer answer,
      shared_->limits().admit(
          who.key_id, {who.requests_per_minute, std::min(who.tokens_per_minute, kMaxTokens)},
          std::min(tokens, kMaxTokens), take == Take::kAll, requests));
  const TimeUs wait_us = std::max(answer.requests_wait_us, answer.tokens_wait_us);
  if (wait_us == 0) return Admission{.reserved = answer.reserved};
  const RateLimit exceeded =
      answer.requests_wait_us >= answer.tokens_wait_us ? RateLimit::kRequests : RateLimit::kTokens;
  const std::lock_guard lock(mutex_);
  const TimeUs now_us = clock_.now();
  refusals_[who.key_id] = {now_us + std::min(wait_us, kRememberedUs), now_us + wait_us, tokens,
                           exceeded};
  return Admission{.exceeded = exceeded, .retry_after_us = wait_us};
}

Admission RateLimiter::admit_here(const Principal& who, uint64_t tokens, Take take,
                                  uint64_t requests) {
  const std::lock_guard lock(mutex_);
  Buckets& buckets = refilled(who);
  const TimeUs requests_us = requests == 0 ? 0 : buckets.requests.wait_us(requests);
  const TimeUs tokens_us = buckets.tokens.wait_us(tokens);
  if (requests_us > 0 || tokens_us > 0) {
    return {.exceeded = requests_us >= tokens_us ? RateLimit::kRequests : RateLimit::kTokens,
            .retry_after_us = std::max(requests_us, tokens_us)};
  }
  if (who.requests_per_minute != 0) buckets.requests.take(requests);
  if (who.tokens_per_minute == 0) return {};
  const uint64_t reserved = take == Take::kAll ? buckets.tokens.left() : tokens;
  buckets.tokens.take(reserved);
  return {.reserved = reserved};
}

void RateLimiter::settle(const Principal& who, uint64_t reserved, uint64_t used) {
  if (who.tokens_per_minute == 0 || used == reserved) return;
  if (shared_ != nullptr && shared_->away_s() == 0) {
    return shared_->limits().settle(
        who.key_id, {who.requests_per_minute, std::min(who.tokens_per_minute, kMaxTokens)},
        static_cast<int64_t>(used) - static_cast<int64_t>(reserved));
  }
  const std::lock_guard lock(mutex_);
  TokenBucket& tokens = refilled(who).tokens;
  if (used > reserved) {
    tokens.take(used - reserved);
  } else {
    tokens.give_back(reserved - used);
  }
}

}  // namespace skein
