// The clients of a simulated run: they submit, misbehave and hang up.

#include "sim/simulator.h"

namespace skein::sim {

void Simulator::arrivals() {
  if (live_ < config_.target_live && rng_.chance(1, 2)) submit_one();
  if (config_.faults.has(Fault::kFlood) && rng_.chance(1, 400)) {
    for (uint32_t i = 0; i < config_.scheduler.max_queue + 8 && !failed(); ++i) submit_one();
  }
  if (config_.faults.has(Fault::kBadInput) && rng_.chance(1, 20))
    submit_bad(rng_.below(config_.scheduler.whole ? 6 : 5));
}

void Simulator::submit_one() {
  if (report_.requests >= config_.max_requests) return;
  auto request = std::make_unique<SimRequest>(workload_.next());
  SimRequest& r = *request;
  RequestSpec spec;
  spec.id = r.id;
  spec.priority = r.priority;
  spec.prompt = r.tokens;
  spec.salt = tenant_salt(r.tenant);
  spec.ends_when_computed = r.ends_when_computed;
  spec.wants_every_row = r.wants_every_row;
  spec.plans_ahead = !r.constrained;
  if (r.limit_tokens != 0) spec.max_new_tokens = r.limit_tokens - r.prompt_tokens;
  uint64_t least = r.limit_tokens != 0 ? r.limit_tokens : r.prompt_tokens + 1;
  if (r.limit_tokens == 0) r.limit_tokens = static_cast<uint32_t>(room_tokens());
  if (r.ends_when_computed) least = r.limit_tokens = r.prompt_tokens;
  if (config_.faults.has(Fault::kDeadlines) && rng_.chance(1, 4)) {
    spec.deadline = r.deadline = now_ + static_cast<TimeUs>(rng_.below(200'000));
  }
  requests_.reserve(requests_.size() + 1);
  if (config_.door && !enter_door(r)) return;  // the scheduler hears nothing of it, no time either
  const TimeUs now = clock();
  const bool starved =
      config_.hooks.fail_after && config_.faults.has(Fault::kNoMemory) && rng_.chance(1, 10);
  if (starved) config_.hooks.fail_after(static_cast<uint32_t>(rng_.below(8)));
  const Status status = scheduler_->submit(std::move(spec), now);
  if (starved) config_.hooks.disarm();
  if (!status.ok()) leave_door(r);

  if (status.code() == Code::kOutOfRange) {
    saw(Path::k_never_fits);
    if (least <= room_tokens())
      fail("request of {} tokens refused with room for {}", least, room_tokens());
    return;
  }
  if (status.code() == Code::kResourceExhausted) {
    if (starved) return saw(Path::k_no_memory);
    saw(Path::k_queue_full);
    if (live_ < scheduler_->config().max_queue) fail("queue full with {} live requests", live_);
    return;
  }
  if (status.code() == Code::kUnavailable) return;  // draining
  if (!status.ok()) return fail("submit: {}", status.message());
  if (least > room_tokens())
    return fail("request of {} tokens taken with room for {}", least, room_tokens());
  r.arrival = seen_now_;
  r.key = r.arrival + static_cast<TimeUs>(r.priority) * config_.scheduler.us_per_class;
  by_id_.emplace(r.id.value, &r);
  requests_.push_back(std::move(request));
  ++live_;
  ++report_.requests;
  // One more than can wait and run cannot be live.
  const uint64_t most =
      uint64_t{scheduler_->config().max_queue} + uint64_t{2} * config_.scheduler.max_batch;
  if (live_ > most) fail("{} requests are live, at most {} can be", live_, most);
}

void Simulator::submit_bad(uint64_t kind) {
  RequestSpec spec;
  spec.id = RequestId{UINT64_MAX - 1};
  spec.prompt = {0};
  spec.max_new_tokens = 1;
  spec.ends_when_computed = config_.scheduler.whole;
  Code expected = Code::kInvalidArgument;
  switch (kind) {
    case 0:
      spec.prompt.clear();
      break;
    case 1:
      spec.prompt = {0, static_cast<TokenId>(config_.scheduler.vocab_size)};
      break;
    case 2:
      spec.prompt = {-1};
      break;
    case 3:
      spec.prompt.assign(room_tokens() + (config_.scheduler.whole ? 1 : 0), 0);
      expected = Code::kOutOfRange;
      break;
    case 5:
      spec.ends_when_computed = false;
      expected = Code::kUnimplemented;
      break;
    default:
      if (live_ == 0) return;
      spec.id = requests_[rng_.below(requests_.size())]->id;
      if (find(spec.id) == nullptr) return;
      expected = Code::kAlreadyExists;
      saw(Path::k_duplicate_id);
  }
  saw(Path::k_bad_input);
  const uint32_t held = scheduler_->stats().held_blocks;
  const Status status = scheduler_->submit(std::move(spec), clock());
  if (status.code() != expected)
    fail("bad input {} gave '{}' ({})", kind, code_name(status.code()), status.message());
  if (scheduler_->stats().held_blocks != held) fail("a refused request changed the blocks held");
}

void Simulator::misbehave() {
  if (requests_.empty()) return;
  SimRequest& request = *requests_[rng_.below(requests_.size())];
  if (!request.ended) check_explanation(request);
  if (config_.faults.has(Fault::kStalledReader)) {
    if (rng_.chance(1, 100)) request.reader_stalled_until = planned_ + 50;
    for (size_t i = 0; i < requests_.size(); ++i) {
      SimRequest& r = *requests_[i];
      if (r.ended || r.reader_stalled_until == 0 || r.reader_stalled_until > planned_) continue;
      saw(Path::k_stalled_reader);
      cancel(r, FinishReason::kTimedOut);
      break;  // requests_ may have changed
    }
  }
  if (!config_.faults.has(Fault::kCancel) || requests_.empty() || !rng_.chance(1, 30)) return;
  if (last_ended_ != 0 && rng_.chance(1, 8)) {
    saw(Path::k_cancel_ended);
    if (scheduler_->cancel(RequestId{last_ended_}, FinishReason::kClient))
      fail("request {} ended twice", last_ended_);
    return;
  }
  SimRequest& victim = *requests_[rng_.below(requests_.size())];
  if (!victim.ended) cancel(victim, FinishReason::kClient);
}

void Simulator::check_explanation(const SimRequest& request) {
  const auto e = scheduler_->explain(request.id, now_);
  if (!e.ok()) return fail("explain: {}", e.message());
  if (e->wait == WaitReason::kPrefixUnderWay) saw(Path::k_prefix_under_way);
  if (config_.scheduler.whole && e->wait == WaitReason::kStepBudget) saw(Path::k_waits_to_be_whole);
  const bool runs = e->status == RequestStatus::PREFILLING || e->status == RequestStatus::RUNNING;
  if (runs != request.in_batch || runs != (e->queue_position == 0)) {
    fail("request {} is {} at queue position {}, in the batch: {}", request.id.value,
         skein::name_of(e->status), e->queue_position, request.in_batch);
  }
  if (e->generated_tokens != request.tokens.size() - request.prompt_tokens ||
      e->preemptions != request.preemptions) {
    fail("request {}: explained as {} tokens, {} preemptions", request.id.value,
         e->generated_tokens, e->preemptions);
  }
}

void Simulator::cancel(SimRequest& request, FinishReason reason) {
  const auto explained = scheduler_->explain(request.id, now_);
  if (!explained.ok()) return fail("explain: {}", explained.message());
  if (request.segments_in_flight > 0) saw(Path::k_cancel_in_flight);
  switch (explained->status) {
    case RequestStatus::WAITING:
      saw(explained->preemptions > 0 ? Path::k_cancel_preempted : Path::k_cancel_queued);
      break;
    case RequestStatus::PREFILLING:
      saw(Path::k_cancel_prefilling);
      break;
    case RequestStatus::RUNNING:
      saw(Path::k_cancel_running);
      break;
    default:
      return fail("live request {} is {}", request.id.value, skein::name_of(explained->status));
  }
  if (!scheduler_->cancel(request.id, reason))
    return fail("cancel of live request {} found nothing", request.id.value);
  mark_ended(request, reason);
}

// A request whose next token depends on the last one may take long to say what comes next.
bool Simulator::puts_off(const Segment& segment, const SimRequest& request) {
  return request.constrained && segment.samples > 0 && rng_.chance(1, 10);
}

void Simulator::resume_put_off() {
  for (const auto& request : requests_) {
    if (request->put_off_until == 0 || request->put_off_until > turns_) continue;
    request->put_off_until = 0;
    scheduler_->resume(request->id);
  }
}

}  // namespace skein::sim
