#include "sim/simulator.h"

#include <algorithm>

namespace skein::sim {

std::string_view name_of(Path path) {
  static constexpr std::string_view kNames[] = {
#define SKEIN_PATH(name) #name,
#include "sim/paths.def"
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
    const bool loses = config_.faults.has(Fault::kLost) && rng_.chance(1, 1500);
    if (!drains && !unloads && !loses) continue;
    if (loses) lose_runner();
    if (drains) {
      saw(Path::k_drained);
      scheduler_->drain();
      submit_one();  // refused now
      for (int i = 0; i < 60 && !scheduler_->idle() && !failed(); ++i) turn();
    } else if (unloads) {
      saw(Path::k_unloaded);
    }
    if (!failed()) end_life();
    if (!failed() && !start_scheduler()) break;
  }
  if (!failed()) run_to_rest("the last arrival");
  if (!failed()) end_life();
  report_.steps = planned_;
  return std::move(report_);
}

bool Simulator::start_scheduler() {
  SchedulerConfig config = config_.scheduler;
  config.kv_events = true;
  cache_copy_.clear();
  if (config_.door) {  // which decides who may wait, and does not count who was preempted
    config.max_queue = queue_places(config.max_queue, Priority::HIGH) + config.max_batch;
    open_door();
  }
  auto made = ContinuousBatchingScheduler::create(config);
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
  const uint64_t bound = 100 + uint64_t{4} * live_ * room_tokens();  // some rows come twice
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

// The steps under way never come back. Whoever is live is told, and the scheduler goes as it is.
void Simulator::lose_runner() {
  if (finished_ < planned_) saw(Path::k_step_lost);
  for (uint64_t i = finished_; i < planned_; ++i) {
    for (const Segment& segment : plans_[i % plans_.size()].segments) {
      SimRequest& request = *by_id_.at(segment.request.value);
      --request.segments_in_flight;
      forget_if_done(request);
    }
  }
  finished_ = planned_;
  while (!requests_.empty() && !failed()) mark_ended(*requests_.back(), FinishReason::kError);
  if (const Status status = scheduler_->check_invariants(); !status.ok())
    return fail("{}", status.message());
  collect_stats();
  (void)start_scheduler();
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
  if (config_.scheduler.whole) {
    return std::min(config_.scheduler.max_context, config_.scheduler.step_tokens);
  }
  return std::min<uint64_t>(config_.scheduler.max_context,
                            uint64_t{config_.scheduler.pool_blocks} * kBlockTokens);
}

void Simulator::mark_ended(SimRequest& request, FinishReason reason) {
  if (request.ended) return fail("request {} ended twice", request.id.value);
  request.ended = true;
  --live_;
  request.started ? note_end_at_door() : leave_door(request);
  last_ended_ = request.id.value;
  if (config_.keep_transcripts) {
    const auto answer = request.tokens.begin() + request.prompt_tokens;
    report_.transcripts[request.id.value] = {{answer, request.tokens.end()}, reason};
  }
  if (is_completed(reason)) workload_.completed(request);
  forget_if_done(request);
}

void Simulator::forget_if_done(SimRequest& request) {
  if (!request.ended || request.segments_in_flight > 0) return;
  by_id_.erase(request.id.value);
  const auto it = std::find_if(requests_.begin(), requests_.end(),
                               [&](const auto& r) { return r.get() == &request; });
  std::swap(*it, requests_.back());
  requests_.pop_back();
}

void Simulator::turn() {
  if (failed()) return;
  if (planned_ - finished_ >= config_.scheduler.depth) finish_oldest();  // it was late
  if (failed()) return;
  ++turns_;
  resume_put_off();
  StepPlan& plan = plans_[planned_ % plans_.size()];
  scheduler_->plan(clock(), plan);
  check_kv_events();
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
    const auto waits = [](const auto& r) { return !r->ended && r->put_off_until > 0; };
    if (live_ > 0 && std::none_of(requests_.begin(), requests_.end(), waits))
      return fail("{} requests are live, nothing is in flight and the plan is empty", live_);
    now_ += 1000;
    return;
  }
  if (failed()) return;
  check_plan(plan);
  check_starvation();
  ++planned_;
  if (failed()) return;
  const bool late = config_.faults.has(Fault::kStepLate) && rng_.chance(1, 20);
  if (late) saw(Path::k_step_late);
  if (late) now_ += static_cast<TimeUs>(rng_.below(100'000));
  if (!late && planned_ - finished_ >= config_.scheduler.depth) finish_oldest();
  if (!failed()) check_door();
  if (const Status status = scheduler_->check_invariants(); !status.ok())
    fail("{}", status.message());
}

void Simulator::finish_oldest() {
  const StepPlan& plan = plans_[finished_ % plans_.size()];
  result_.reset(plan.step);
  truth_.clear();
  StepLoad load;
  const bool fails = config_.faults.has(Fault::kStepFails) && rng_.chance(1, 200);
  if (fails) saw(Path::k_step_failed);
  for (const Segment& segment : plan.segments) {
    load.add(segment.start, segment.count);
    if (fails) {
      oracle_.run_orphan(segment);
      result_.add(SegmentOutcome::kFault);
      truth_.push_back({SegmentOutcome::kFault, {}, {}});
    } else {
      run_segment(segment);
    }
    if (failed()) return;
  }
  const auto faulty = [](const SegmentResult& r) { return r.outcome == SegmentOutcome::kFault; };
  const auto results = result_.segments();
  const bool threw =
      config_.faults.has(Fault::kStepThrows) && std::any_of(results.begin(), results.end(), faulty);
  if (threw) saw(Path::k_step_threw);
  result_.elapsed_us = static_cast<TimeUs>(
      (threw ? 2 : 1) * (config_.row_us * (20 + load.tokens) + load.pairs / 64 + rng_.below(100)));
  now_ += result_.elapsed_us;

  // A client may hang up at the very moment that its step is done.
  if (config_.faults.has(Fault::kCancel) && rng_.chance(1, 60)) {
    SimRequest* request = find(plan.segments[rng_.below(plan.segments.size())].request);
    if (request != nullptr) cancel(*request, FinishReason::kClient);
  }
  if (failed()) return;
  scheduler_->commit(result_, clock(), effects_);
  ++finished_;
  check_kv_events();
  check_effects(plan);
}

// Appends what came of a segment, and what of it the scheduler is told.
void Simulator::run_segment(const Segment& segment) {
  SimRequest* request = find(segment.request);
  if (request == nullptr) {
    oracle_.run_orphan(segment);
    truth_.emplace_back();
    const std::vector<TokenId> tokens(segment.samples, 0);
    return result_.add(SegmentOutcome::kOk, tokens, tokens);
  }
  if (const Status status = oracle_.run_segment(segment, *request); !status.ok())
    return fail("{}", status.message());
  truth_.push_back(sample_segment(segment, *request));
  const SegmentResult& truth = truth_.back();
  if (puts_off(segment, *request)) {
    truth_.back() = {SegmentOutcome::kPutOff, {}, {}};
    return result_.add(SegmentOutcome::kPutOff);
  }
  if (truth.outcome == SegmentOutcome::kFault) return report_fault(segment, *request);
  const uint32_t next = request->generated() + static_cast<uint32_t>(truth.tokens.size());
  const auto drafts = oracle_drafts(config_, request->seed, next);
  result_.add(truth.outcome, truth.tokens, drafts, oracle_odds(request->seed, next, drafts.size()));
}

SegmentResult Simulator::sample_segment(const Segment& segment, const SimRequest& request) {
  SegmentResult truth;
  for (uint32_t i = 0; i < segment.samples; ++i) {
    const OracleSample sample = oracle_sample(config_, request.seed, request.generated() + i);
    truth.outcome = sample.outcome;
    if (sample.outcome == SegmentOutcome::kStop && i > 0) saw(Path::k_stop_after_draft);
    if (sample.outcome == SegmentOutcome::kFault) truth.tokens.clear();
    if (sample.token == kNoToken) break;
    truth.tokens.push_back(sample.token);
    if (sample.outcome == SegmentOutcome::kLast || i == segment.drafts.size()) break;
    const bool right = sample.token == segment.drafts[i];
    saw(right ? Path::k_draft_right : Path::k_draft_wrong);
    if (!right) break;
  }
  return truth;
}

// Some faults are reported; others are a result that cannot be.
void Simulator::report_fault(const Segment& segment, const SimRequest& request) {
  saw(Path::k_segment_fault);
  const std::vector<TokenId> outside = {static_cast<TokenId>(config_.scheduler.vocab_size)};
  const std::vector<TokenId> too_many(segment.samples + 1, 0);
  switch (request.seed % 4) {
    case 0:
      return result_.add(SegmentOutcome::kOk, outside);
    case 1:
      return result_.add(SegmentOutcome::kOk, too_many, too_many);
    case 2:
      return result_.add(SegmentOutcome::kOk);
    default:
      return result_.add(SegmentOutcome::kFault);
  }
}

// The effects must be exactly what the segments of live requests amount to, in their order.
void Simulator::check_effects(const StepPlan& plan) {
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
  for (size_t i = 0; i < plan.segments.size() && !failed(); ++i) {
    const Segment& segment = plan.segments[i];
    const SegmentResult& truth = truth_[i];
    SimRequest* request = by_id_.at(segment.request.value);
    --request->segments_in_flight;
    if (segment.samples > 0) --request->pending_samples;
    request->drafts_in_flight -= static_cast<uint32_t>(segment.drafts.size());
    if (request->ended) {
      forget_if_done(*request);
      continue;
    }
    request->drafts = result_.segments()[i].drafts;
    if (truth.outcome == SegmentOutcome::kPutOff) {
      saw(Path::k_put_off);
      const uint64_t turns = rng_.below(4);
      request->put_off_until = turns_ + 1 + turns;
      request->again_to = std::max(request->again_to, segment.start + segment.count);
      request->planned = static_cast<uint32_t>(request->tokens.size()) - 1;
      top_bound_ += 2 + turns;  // a row more, and the turns without one
      continue;
    }
    if (truth.outcome == SegmentOutcome::kFault) {
      expect_end(*request, FinishReason::kError);
      continue;
    }
    check_tokens(segment, *request, truth, tokens);
    if (failed()) return;
    if (segment.ends) saw(Path::k_ends_unsampled);
    if (truth.outcome == SegmentOutcome::kLast) saw(Path::k_last_token);
    if (segment.ends || truth.outcome != SegmentOutcome::kOk) {
      expect_end(*request, FinishReason::kStop);
    } else if (request->tokens.size() >= request->limit_tokens && segment.samples > 0) {
      expect_end(*request, FinishReason::kLength);
    }
  }
  if (failed()) return;
  if (tokens != effects_.tokens.size() || ends != effects_.ended.size()) {
    fail("{} tokens and {} ends were due, {} and {} came", tokens, ends, effects_.tokens.size(),
         effects_.ended.size());
  }
}

// The token events from number `at` on are those of this segment.
void Simulator::check_tokens(const Segment& segment, SimRequest& request,
                             const SegmentResult& truth, size_t& at) {
  for (const TokenId token : truth.tokens) {
    const TokenEvent* event = at < effects_.tokens.size() ? &effects_.tokens[at++] : nullptr;
    if (event == nullptr || event->request != request.id || event->index != request.generated() ||
        event->token != token) {
      return fail("request {} did not get its token {}", request.id.value, request.generated());
    }
    request.tokens.push_back(token);
  }
  if (segment.drafts.empty()) return;
  // Its next segment goes on after the last draft that came true.
  request.planned = static_cast<uint32_t>(request.tokens.size()) - 1;
}

}  // namespace skein::sim
