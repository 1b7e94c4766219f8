#include "sim/simulator.h"

#include <algorithm>

namespace skein::sim {

std::string_view name_of(Path path) {
  static constexpr std::string_view kNames[] = {
#define X(name) #name,
      SKEIN_SIM_PATHS(X)
#undef X
  };
  return kNames[static_cast<size_t>(path)];
}

Simulator::Simulator(SimConfig config)
    : config_(std::move(config)),
      rng_(config_.seed ^ 0x51A),
      workload_(config_),
      oracle_(config_.scheduler.pool_blocks),
      named_(config_.scheduler.pool_blocks, 0) {}

SimReport Simulator::run() {
  if (!start_scheduler()) return std::move(report_);
  // A workload of which nothing fits gives no steps, however many turns.
  const uint64_t most_turns = 50 * uint64_t{config_.steps} + 1000;
  for (uint64_t turns = 0; planned_ < config_.steps && turns < most_turns && !failed(); ++turns) {
    if (report_.requests >= config_.max_requests && live_ == 0) break;
    arrivals();
    misbehave();
    turn();
    const bool drains = config_.faults.has(Fault::kDrain) && rng_.chance(1, 1500);
    const bool unloads = config_.faults.has(Fault::kUnload) && rng_.chance(1, 1500);
    if (!drains && !unloads) continue;
    if (drains) {
      saw(Path::k_drained);
      scheduler_->drain();
      submit_one();  // refused now
      for (int i = 0; i < 60 && !scheduler_->idle() && !failed(); ++i) turn();
    } else {
      saw(Path::k_unloaded);
    }
    end_life();
    if (!failed() && !start_scheduler()) break;
  }
  if (!failed()) run_to_rest("the last arrival");
  if (!failed()) end_life();
  report_.steps = planned_;
  return std::move(report_);
}

bool Simulator::start_scheduler() {
  auto made = ContinuousBatchingScheduler::create(config_.scheduler);
  if (!made.ok()) {
    fail("no scheduler: {}", made.message());
    return false;
  }
  scheduler_ = std::move(made).value();
  oracle_ = OracleModel(config_.scheduler.pool_blocks);
  top_ = RequestId{};
  seen_now_ = 0;  // a new scheduler has been told nothing yet
  if (config_.scheduler.depth == 2) saw(Path::k_depth_2);
  return true;
}

void Simulator::run_to_rest(const char* after) {
  uint64_t turns = 0;
  const uint64_t bound = 100 + 2 * live_ * room_tokens();
  while (!scheduler_->idle() && !failed()) {
    if (++turns > bound) fail("not at rest {} turns after {}", bound, after);
    turn();
  }
}

// Everyone who is left is told, and then nothing may be left behind.
void Simulator::end_life() {
  ends_.clear();
  scheduler_->cancel_all(FinishReason::kDrained, ends_);
  for (const EndEvent& event : ends_) {
    SimRequest* request = find(event.request);
    if (request == nullptr)
      return fail("cancel_all ended request {} a second time", event.request.value);
    mark_ended(*request, event.reason);
  }
  if (live_ != 0) return fail("{} requests are live after cancel_all", live_);
  while (finished_ < planned_ && !failed()) finish_oldest();
  if (failed()) return;
  const SchedulerStats stats = scheduler_->stats();
  if (!scheduler_->idle()) return fail("not idle after everyone ended");
  if (stats.held_blocks != 0) return fail("{} blocks are held at rest", stats.held_blocks);
  if (const Status status = scheduler_->check_invariants(); !status.ok())
    return fail("{}", status.message());
  if (stats.submitted != stats.completed + stats.cancelled) {
    fail("{} submitted, {} completed, {} cancelled", stats.submitted, stats.completed,
         stats.cancelled);
  }
  collect_stats();
}

void Simulator::collect_stats() {
  const SchedulerStats stats = scheduler_->stats();
  const auto add = [&](Path path, uint64_t n) { report_.paths[static_cast<size_t>(path)] += n; };
  add(Path::k_preemption, stats.preemptions);
  add(Path::k_class_preemption, stats.class_preemptions);
  add(Path::k_admission_hit, stats.admission_hits);
  add(Path::k_prefill_hit, stats.prefill_hits);
  add(Path::k_full_hit, stats.full_hits);
  add(Path::k_eviction, stats.evictions);
  add(Path::k_wasted_sample, stats.wasted_tokens);
  report_.tokens += stats.generated_tokens;
}

TimeUs Simulator::clock() {
  TimeUs told = now_;
  if (config_.faults.has(Fault::kClockSteps) && rng_.chance(1, 50)) {
    told -= static_cast<TimeUs>(rng_.below(3600 * kUsPerSecond));
    saw(Path::k_clock_stepped_back);
  }
  seen_now_ = std::max(seen_now_, told);
  return told;
}

SimRequest* Simulator::find(RequestId id) {
  const auto it = by_id_.find(id.value);
  return it == by_id_.end() || it->second->ended ? nullptr : it->second;
}

uint64_t Simulator::room_tokens() const {
  return std::min<uint64_t>(config_.scheduler.max_context,
                            uint64_t{config_.scheduler.pool_blocks} * kBlockTokens);
}

void Simulator::arrivals() {
  if (live_ < config_.target_live && rng_.chance(1, 2)) submit_one();
  if (config_.faults.has(Fault::kFlood) && rng_.chance(1, 400)) {
    for (uint32_t i = 0; i < config_.scheduler.max_queue + 8 && !failed(); ++i) submit_one();
  }
  if (config_.faults.has(Fault::kBadInput) && rng_.chance(1, 20)) submit_bad(rng_.below(5));
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
  if (r.limit_tokens != 0) spec.max_new_tokens = r.limit_tokens - r.prompt_tokens;
  const uint64_t least = r.limit_tokens != 0 ? r.limit_tokens : r.prompt_tokens + 1;
  if (r.limit_tokens == 0) r.limit_tokens = static_cast<uint32_t>(room_tokens());
  if (config_.faults.has(Fault::kDeadlines) && rng_.chance(1, 4)) {
    spec.deadline = r.deadline = now_ + static_cast<TimeUs>(rng_.below(200'000));
  }
  requests_.reserve(requests_.size() + 1);
  const bool starved =
      config_.hooks.fail_after && config_.faults.has(Fault::kNoMemory) && rng_.chance(1, 10);
  if (starved) config_.hooks.fail_after(static_cast<uint32_t>(rng_.below(8)));
  const Status status = scheduler_->submit(std::move(spec), clock());
  if (starved) config_.hooks.disarm();

  if (status.code() == Code::kOutOfRange) {
    saw(Path::k_never_fits);
    if (least <= room_tokens())
      fail("request of {} tokens refused with room for {}", least, room_tokens());
    return;
  }
  if (status.code() == Code::kResourceExhausted) {
    if (starved) return saw(Path::k_no_memory);
    saw(Path::k_queue_full);
    if (live_ < config_.scheduler.max_queue) fail("queue full with {} live requests", live_);
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
  const uint64_t most = uint64_t{config_.scheduler.max_queue} + 2 * config_.scheduler.max_batch;
  if (live_ > most) fail("{} requests are live, at most {} can be", live_, most);
}

void Simulator::submit_bad(uint64_t kind) {
  RequestSpec spec;
  spec.id = RequestId{UINT64_MAX - 1};
  spec.prompt = {0};
  spec.max_new_tokens = 1;
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
      spec.prompt.assign(room_tokens(), 0);
      expected = Code::kOutOfRange;
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
  if (request.rows_in_flight > 0) saw(Path::k_cancel_in_flight);
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

void Simulator::mark_ended(SimRequest& request, FinishReason reason) {
  if (request.ended) return fail("request {} ended twice", request.id.value);
  request.ended = true;
  --live_;
  last_ended_ = request.id.value;
  if (config_.keep_transcripts) {
    const auto answer = request.tokens.begin() + request.prompt_tokens;
    report_.transcripts[request.id.value] = {{answer, request.tokens.end()}, reason};
  }
  if (is_completed(reason)) workload_.completed(request);
  forget_if_done(request);
}

void Simulator::forget_if_done(SimRequest& request) {
  if (!request.ended || request.rows_in_flight > 0) return;
  by_id_.erase(request.id.value);
  const auto it = std::find_if(requests_.begin(), requests_.end(),
                               [&](const auto& r) { return r.get() == &request; });
  std::swap(*it, requests_.back());
  requests_.pop_back();
}

void Simulator::turn() {
  if (failed()) return;
  StepPlan& plan = plans_[planned_ % plans_.size()];
  scheduler_->plan(clock(), plan);
  for (const EndEvent& event : plan.ended) {
    SimRequest* request = find(event.request);
    if (request == nullptr)
      return fail("plan ended request {}, which is not live", event.request.value);
    if (event.reason != FinishReason::kTimedOut || request->deadline > seen_now_) {
      return fail("plan ended request {} {} us before its deadline", event.request.value,
                  request->deadline - seen_now_);
    }
    saw(request->in_batch ? Path::k_deadline_running : Path::k_deadline_queued);
    mark_ended(*request, event.reason);
  }
  check_deadlines();
  check_moves(plan);
  if (plan.empty()) {
    if (finished_ < planned_) return finish_oldest();
    if (live_ > 0)
      return fail("{} requests are live, nothing is in flight and the plan is empty", live_);
    now_ += 1000;
    return;
  }
  if (failed()) return;
  check_plan(plan);
  check_starvation();
  ++planned_;
  if (failed()) return;
  if (planned_ - finished_ >= config_.scheduler.depth) finish_oldest();
  if (const Status status = scheduler_->check_invariants(); !status.ok())
    fail("{}", status.message());
}

void Simulator::finish_oldest() {
  const StepPlan& plan = plans_[finished_ % plans_.size()];
  result_.step = plan.step;
  result_.rows.clear();
  StepLoad load;
  for (const PlanRow& row : plan.rows) {
    load.add(row.start, row.count);
    result_.rows.push_back(run_row(row));
    if (failed()) return;
  }
  const auto faulty = [](const RowResult& r) { return r.outcome == RowOutcome::kFault; };
  const bool threw = config_.faults.has(Fault::kStepThrows) &&
                     std::any_of(result_.rows.begin(), result_.rows.end(), faulty);
  if (threw) saw(Path::k_step_threw);
  result_.elapsed_us = static_cast<TimeUs>(
      (threw ? 2 : 1) * (300 + 15 * load.tokens + load.pairs / 64 + rng_.below(100)));
  now_ += result_.elapsed_us;

  // A client may hang up at the very moment that its step is done.
  if (config_.faults.has(Fault::kCancel) && rng_.chance(1, 60)) {
    SimRequest* request = find(plan.rows[rng_.below(plan.rows.size())].request);
    if (request != nullptr) cancel(*request, FinishReason::kClient);
  }
  if (failed()) return;
  scheduler_->commit(result_, clock(), effects_);
  ++finished_;
  check_effects(plan, result_);
}

RowResult Simulator::run_row(const PlanRow& row) {
  SimRequest* request = find(row.request);
  if (request == nullptr) {
    oracle_.run_orphan(row);
    return {RowOutcome::kOk, 0};
  }
  if (const Status status = oracle_.run_row(row, *request); !status.ok()) {
    fail("{}", status.message());
    return {};
  }
  if (!row.samples) return {};
  const auto index = static_cast<uint32_t>(request->tokens.size()) - request->prompt_tokens;
  const OracleSample sample = oracle_sample(config_, request->seed, index);
  if (sample.outcome == RowOutcome::kFault) {
    saw(Path::k_row_fault);
    // Some faults are a token outside the vocabulary instead of a reported one.
    if (request->seed % 2 == 0)
      return {RowOutcome::kOk, static_cast<TokenId>(config_.scheduler.vocab_size)};
  }
  return {sample.outcome, sample.token};
}

// The effects must be exactly what the rows of live requests amount to, in their order.
void Simulator::check_effects(const StepPlan& plan, const StepResult& result) {
  size_t tokens = 0;
  size_t ends = 0;
  const auto expect_end = [&](SimRequest& request, FinishReason reason) {
    if (ends >= effects_.ended.size() || effects_.ended[ends].request != request.id ||
        effects_.ended[ends].reason != reason) {
      return fail("request {} should have ended with {}", request.id.value, skein::name_of(reason));
    }
    ++ends;
    mark_ended(request, reason);
  };
  for (size_t i = 0; i < plan.rows.size() && !failed(); ++i) {
    const PlanRow& row = plan.rows[i];
    SimRequest* request = by_id_.at(row.request.value);
    --request->rows_in_flight;
    if (row.samples) --request->pending_samples;
    if (request->ended) {
      forget_if_done(*request);
      continue;
    }
    const auto [outcome, token] = result.rows[i];
    if (outcome == RowOutcome::kFault ||
        token >= static_cast<TokenId>(config_.scheduler.vocab_size)) {
      expect_end(*request, FinishReason::kError);
    } else if (row.samples && outcome == RowOutcome::kStop) {
      expect_end(*request, FinishReason::kStop);
    } else if (row.samples && outcome == RowOutcome::kToolCalls) {
      expect_end(*request, FinishReason::kToolCalls);
    } else if (row.samples) {
      const auto index = static_cast<uint32_t>(request->tokens.size()) - request->prompt_tokens;
      if (tokens >= effects_.tokens.size() || effects_.tokens[tokens].request != request->id ||
          effects_.tokens[tokens].index != index || effects_.tokens[tokens].token != token) {
        return fail("request {} did not get its token {}", request->id.value, index);
      }
      ++tokens;
      request->tokens.push_back(token);
      if (request->tokens.size() >= request->limit_tokens)
        expect_end(*request, FinishReason::kLength);
    }
  }
  if (failed()) return;
  if (tokens != effects_.tokens.size() || ends != effects_.ended.size()) {
    fail("{} tokens and {} ends were due, {} and {} came", tokens, ends, effects_.tokens.size(),
         effects_.ended.size());
  }
}

}  // namespace skein::sim
