#include "sched/queue_door.h"

#include <algorithm>

#include "base/check.h"

namespace skein {
namespace {

// However small the batch and however slow the steps: clients that ask a few times at once need it.
constexpr uint32_t kLeastShare = 4;

}  // namespace

QueueDoor::QueueDoor(const Config& config)
    : config_(config),
      open_(config.max_batch),
      bucket_us_(std::max<TimeUs>(1, config.us_per_class / 2 / kBuckets)) {}

TimeUs QueueDoor::advance(TimeUs now) {
  now_ = std::max(now_, now);
  const TimeUs bucket = now_ / bucket_us_;
  // Ends that are older than the window go.
  for (TimeUs b = std::max(bucket_ + 1, bucket - kBuckets + 1); b <= bucket; ++b) {
    ends_[static_cast<size_t>(b) % kBuckets] = 0;
  }
  bucket_ = bucket;
  return now_;
}

DoorAnswer QueueDoor::enter(const QueueArrival& arrival, TimeUs now) {
  advance(now);
  const bool contended = others_ask(arrival.tenant);
  if (!arrival.background) note_asked(arrival.tenant);
  const uint32_t places = queue_places(config_.max_queue, arrival.priority);
  if (waiting_ >= places) return {DoorAnswer::Kind::kQueueFull, waiting_ + 1, places};
  uint32_t may_hold = places - places_for_others(config_.max_queue);
  if (contended && !arrival.follows) may_hold = std::min(may_hold, share(now));
  const uint32_t held_before = held(arrival.tenant);
  if (held_before >= may_hold) return {DoorAnswer::Kind::kShareFull, held_before + 1, may_hold};
  Holder& holder = holders_[arrival.tenant];
  holder.background = arrival.background;
  if (holder.places++ == 0 && !arrival.background) ++asking_;
  ++waiting_;
  return {};
}

void QueueDoor::leave(uint64_t tenant) {
  const auto it = holders_.find(tenant);
  SKEIN_CHECK(it != holders_.end(), "tenant {} leaves a place that it does not hold", tenant);
  --waiting_;
  if (--it->second.places > 0) return;
  if (!it->second.background) --asking_;
  holders_.erase(it);
}

void QueueDoor::note_end(TimeUs now) {
  advance(now);
  ++ends_[static_cast<size_t>(bucket_) % kBuckets];
}

uint32_t QueueDoor::held(uint64_t tenant) const {
  const auto it = holders_.find(tenant);
  return it == holders_.end() ? 0 : it->second.places;
}

uint32_t QueueDoor::ends_in_window(TimeUs now) {
  advance(now);
  uint64_t ends = 0;
  for (const uint32_t count : ends_) ends += count;
  return static_cast<uint32_t>(std::min<uint64_t>(ends, config_.max_queue));
}

uint32_t QueueDoor::share(TimeUs now) {
  return std::max({kLeastShare, config_.max_batch / 8, ends_in_window(now) + open_});
}

std::optional<TimeUs> QueueDoor::share_retry_us(uint64_t tenant, TimeUs now) {
  const uint32_t starts = share(now);  // within half a class gap
  const uint64_t wanted = uint64_t{held(tenant)} + 1;
  if (!others_ask(tenant) || wanted <= starts) return std::nullopt;
  return config_.us_per_class / 2 / TimeUs{starts} * static_cast<TimeUs>(wanted - starts);
}

bool QueueDoor::others_ask(uint64_t tenant) const {
  const auto it = holders_.find(tenant);
  const bool asks_itself = it != holders_.end() && !it->second.background;
  if (asking_ > (asks_itself ? 1 : 0)) return true;
  const TimeUs asked = tenant == latest_tenant_ ? other_asked_ : latest_asked_;
  return now_ - asked <= config_.us_per_class;
}

void QueueDoor::note_asked(uint64_t tenant) {
  if (tenant != latest_tenant_) other_asked_ = latest_asked_;
  latest_tenant_ = tenant;
  latest_asked_ = now_;
}

}  // namespace skein
