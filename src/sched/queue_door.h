// QueueDoor: who may join the queue. Fairness between tenants acts here and nowhere else: whoever
// is in waits in the one order of all requests, whoever's it is.
//
// A pure state machine, as the scheduler is: time is an argument, and there is no clock, lock,
// thread or float in here.
//
//   enter(arrival, now)   takes a place, or says why not, with both numbers
//   leave(tenant)         gives it back: the request has started, or ended before it could
//   note_end(now)         a request that ran has ended: its place in the batch is the next one's
//
// A tenant that is alone may hold all but 32 places (all but an eighth, where that is fewer), so
// that whoever comes next finds one. Once another tenant asks, that is, waits or has asked within
// the last class gap, it may hold what starts within half a class gap. So what it queues meanwhile
// waits for less than a class gap, and does not age past the other's arrivals of a better class.
// What it was let in with while it was alone stays. Work in the background (the lines of a batch)
// is limited as others are, and limits nobody: who sent it waits for it as long as it takes.
//
// What starts within half a class gap: as many as ended within the last one, and as many as the
// batch has places open; at least four, or an eighth of a batch. A request of many choices comes in
// as far as that goes, and each of the others when one of its own has ended and has left its place
// in the batch: such a follower is not bound by the share, so that what was begun is finished.
//
// Everything is bounded: a tenant is known while it holds a place. Single-threaded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/time.h"
#include "sched/types.h"

namespace skein {

// How many may wait when one of this class arrives: `max_queue`, and for HIGH an eighth more, so
// that a flood of the others does not shut it out.
constexpr uint32_t queue_places(uint32_t max_queue, Priority priority) {
  return priority == Priority::HIGH ? max_queue + max_queue / 8 + 1 : max_queue;
}

// One tenant leaves so many of these to the others even while it is alone.
constexpr uint32_t places_for_others(uint32_t max_queue) {
  return max_queue / 8 < 32 ? max_queue / 8 : 32;
}

struct QueueArrival {
  uint64_t tenant = 0;
  Priority priority = Priority::NORMAL;
  bool follows = false;     // one that ran has ended, and this is to have its place in the batch
  bool background = false;  // nobody waits for it; such a tenant has a number of its own
};

struct DoorAnswer {
  enum class Kind : uint8_t { kEntered, kQueueFull, kShareFull };
  Kind kind = Kind::kEntered;
  // A refusal says how many places would be held, in all or by this tenant, and how many may be.
  uint32_t wanted = 0;
  uint32_t places = 0;

  bool entered() const { return kind == Kind::kEntered; }
};

class QueueDoor {
 public:
  struct Config {
    uint32_t max_queue = 0;
    uint32_t max_batch = 0;
    TimeUs us_per_class = 0;
  };
  explicit QueueDoor(const Config& config);

  // std::bad_alloc leaves everything as it was.
  DoorAnswer enter(const QueueArrival& arrival, TimeUs now);
  void leave(uint64_t tenant);
  void note_end(TimeUs now);
  // Requests that the batch could take on, if they waited, without anyone's end.
  void set_open(uint32_t requests) { open_ = requests; }

  uint32_t waiting() const { return waiting_; }
  uint32_t held(uint64_t tenant) const;
  // The number of places that a tenant may hold while others ask.
  uint32_t share(TimeUs now);
  // Where others ask and one more is beyond the tenant's share: how long it takes, as things go,
  // until it is not.
  std::optional<TimeUs> share_retry_us(uint64_t tenant, TimeUs now);

 private:
  static constexpr uint32_t kBuckets = 8;

  TimeUs advance(TimeUs now);
  uint32_t ends_in_window(TimeUs now);
  bool others_ask(uint64_t tenant) const;
  void note_asked(uint64_t tenant);

  struct Holder {
    uint32_t places = 0;
    bool background = false;
  };

  Config config_;
  std::unordered_map<uint64_t, Holder> holders_;  // by tenant, while it holds places
  uint32_t asking_ = 0;                           // of these, not in the background
  uint32_t waiting_ = 0;
  uint32_t open_;

  // Who asked last, and when somebody else did.
  uint64_t latest_tenant_ = 0;
  TimeUs latest_asked_ = kLongAgo;
  TimeUs other_asked_ = kLongAgo;
  static constexpr TimeUs kLongAgo = -kNever / 2;

  // Ends within the last half of a class gap, in buckets of an eighth of that.
  std::array<uint32_t, kBuckets> ends_{};
  TimeUs bucket_us_;
  TimeUs bucket_ = 0;  // the current one's number
  TimeUs now_ = 0;
};

}  // namespace skein
