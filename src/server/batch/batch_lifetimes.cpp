#include "server/batch/batch_lifetimes.h"

#include <algorithm>
#include <utility>

namespace skein {
namespace {

constexpr int64_t kCountEveryS = 30;

}  // namespace

Status BatchLifetimes::count(std::vector<OpenBatch>& open) {
  std::map<int64_t, TimeUs> counted;
  std::map<int64_t, int64_t> served_s;
  for (const OpenBatch& batch : open) {
    const BatchStatus status = batch.record.status;
    if (status != BatchStatus::kValidating && status != BatchStatus::kInProgress) continue;
    const auto known = counted_until_us_.find(batch.seq);
    const TimeUs until = known == counted_until_us_.end() ? clock_.now() : known->second;
    counted[batch.seq] = until;
    const int64_t passed_s = (clock_.now() - until) / kUsPerSecond;
    if (passed_s >= kCountEveryS) served_s[batch.seq] = passed_s;
  }
  counted_until_us_ = std::move(counted);
  if (served_s.empty()) return {};
  SKEIN_TRY(store_.batches().renew(store_.epoch(), served_s));
  for (OpenBatch& batch : open) {
    const auto served = served_s.find(batch.seq);
    if (served == served_s.end()) continue;
    batch.served_s += served->second;
    counted_until_us_[batch.seq] += served->second * kUsPerSecond;
  }
  return {};
}

TimeUs BatchLifetimes::next_count_us() const {
  TimeUs next = kNever;
  for (const auto& [seq, until] : counted_until_us_) {
    next = std::min(next, until + kCountEveryS * kUsPerSecond);
  }
  return next;
}

TimeUs BatchLifetimes::end_us(const OpenBatch& batch) const {
  const int64_t lifetime_s =
      batch.record.expires_at_s - batch.record.at_s(BatchStatus::kValidating);
  const auto counted = counted_until_us_.find(batch.seq);
  const TimeUs from_us = counted == counted_until_us_.end() ? clock_.now() : counted->second;
  return from_us + (lifetime_s - batch.served_s) * kUsPerSecond;
}

}  // namespace skein
