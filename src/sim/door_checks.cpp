// The door of the queue, as an engine has it before its scheduler, and what must hold of it:
// counted anew from the requests themselves.
#include <algorithm>

#include "sim/simulator.h"

namespace skein::sim {
namespace {

QueueDoor::Config door_config(const SchedulerConfig& config) {
  return {config.max_queue, config.usual_batch(), config.us_per_class};
}

}  // namespace

void Simulator::open_door() {
  door_.emplace(door_config(config_.scheduler));
  door_open_ = config_.scheduler.usual_batch();
  asked_.clear();
  door_ends_.clear();
}

// False: it is refused.
bool Simulator::enter_door(const SimRequest& request) {
  const uint32_t waiting = count_waiting(nullptr);
  const uint32_t held = count_waiting(&request.tenant);
  const DoorAnswer answer = door_->enter({.tenant = request.tenant,
                                          .priority = request.priority,
                                          .background = in_background(request.tenant)},
                                         seen_now_);
  check_answer(request, answer, waiting, held);
  if (!in_background(request.tenant)) asked_[request.tenant] = seen_now_;
  return answer.entered();
}

void Simulator::check_answer(const SimRequest& request, const DoorAnswer& answer, uint32_t waiting,
                             uint32_t held) {
  const SchedulerConfig& s = config_.scheduler;
  const uint32_t places = queue_places(s.max_queue, request.priority);
  const uint32_t alone = places - std::min(32U, s.max_queue / 8);
  const bool contended = others_ask(request.tenant);
  // The door counts ends in buckets of a sixteenth of the gap: it may know an eighth fewer.
  const TimeUs bucket_us = std::max<TimeUs>(1, s.us_per_class / 16);
  const uint32_t least = contended ? std::min(alone, share_of_ends(7 * bucket_us)) : alone;
  const uint32_t most = contended ? std::min(alone, share_of_ends(8 * bucket_us)) : alone;
  switch (answer.kind) {
    case DoorAnswer::Kind::kEntered:
      if (waiting >= places) return fail("{} wait, one more got in; {} may", waiting, places);
      if (held >= most) {
        fail("tenant {} holds {} places and got another; its share is {} ({} others ask)",
             request.tenant, held, most, contended ? "while" : "no");
      }
      return;
    case DoorAnswer::Kind::kQueueFull:
      saw(Path::k_door_full);
      if (waiting < places) fail("refused with {} waiting; {} may", waiting, places);
      return;
    case DoorAnswer::Kind::kShareFull:
      saw(contended ? Path::k_share_full : Path::k_alone_full);
      if (held < least) {
        fail("tenant {} holds {} places and was refused another; its share is {}", request.tenant,
             held, least);
      }
      return;
  }
}

bool Simulator::in_background(uint32_t tenant) const {
  return config_.background && tenant + 1 == config_.tenants;
}

bool Simulator::others_ask(uint32_t tenant) const {
  const auto waits = [&](const auto& r) {
    return !r->ended && !r->started && r->tenant != tenant && !in_background(r->tenant);
  };
  if (std::any_of(requests_.begin(), requests_.end(), waits)) return true;
  return std::any_of(asked_.begin(), asked_.end(), [&](const auto& asked) {
    return asked.first != tenant && seen_now_ - asked.second <= config_.scheduler.us_per_class;
  });
}

// The places that may be held where the ends of so long a time count.
uint32_t Simulator::share_of_ends(TimeUs window_us) const {
  const auto ends =
      static_cast<uint32_t>(std::count_if(door_ends_.begin(), door_ends_.end(), [&](TimeUs ended) {
        return ended > seen_now_ - window_us;
      }));
  const SchedulerConfig& s = config_.scheduler;
  return std::max({4U, s.usual_batch() / 8, std::min(ends, s.max_queue) + door_open_});
}

uint32_t Simulator::count_waiting(const uint32_t* tenant) const {
  return static_cast<uint32_t>(
      std::count_if(requests_.begin(), requests_.end(), [&](const auto& r) {
        return !r->ended && !r->started && (tenant == nullptr || r->tenant == *tenant);
      }));
}

// It has started, or has ended before it could.
void Simulator::leave_door(SimRequest& request) {
  if (door_) door_->leave(request.tenant);
}

void Simulator::note_end_at_door() {
  if (!door_) return;
  door_->note_end(seen_now_);
  door_ends_.push_back(seen_now_);
  while (door_ends_.front() < seen_now_ - config_.scheduler.us_per_class) door_ends_.pop_front();
}

// After every turn, as an engine does it.
void Simulator::check_door() {
  if (!door_) return;
  const auto runs = static_cast<uint32_t>(std::count_if(
      requests_.begin(), requests_.end(), [](const auto& r) { return !r->ended && r->in_batch; }));
  door_open_ = scheduler_->open_slots();
  const bool by_time = config_.scheduler.sure_batch > 0;  // then more may run than is usual
  if (!by_time && door_open_ != 0 && door_open_ + runs != config_.scheduler.max_batch) {
    return fail("{} slots are open, {} requests run, {} may", door_open_, runs,
                config_.scheduler.max_batch);
  }
  door_->set_open(door_open_);
  if (door_->waiting() != count_waiting(nullptr)) {
    return fail("{} places are taken at the door, {} requests wait", door_->waiting(),
                count_waiting(nullptr));
  }
  for (uint32_t tenant = 0; tenant < config_.tenants; ++tenant) {
    if (door_->held(tenant) == count_waiting(&tenant)) continue;
    return fail("tenant {} holds {} places, and has {} requests waiting", tenant,
                door_->held(tenant), count_waiting(&tenant));
  }
}

}  // namespace skein::sim
