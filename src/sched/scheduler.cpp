#include "sched/scheduler.h"

#include <algorithm>
#include <new>

#include "base/reserve.h"

namespace skein {

Result<std::unique_ptr<ContinuousBatchingScheduler>> ContinuousBatchingScheduler::create(
    const SchedulerConfig& config) {
  const auto at_least = [](std::string_view name, uint64_t value, uint64_t low, uint64_t high) {
    if (value >= low && value <= high) return Status{};
    return invalid_argument("{} is {}; it must be {} to {}", name, value, low, high);
  };
  SKEIN_TRY(at_least("batch_block_pool_size", config.pool_blocks, 1, kMaxPoolBlocks));
  SKEIN_TRY(at_least("batch_max_batch_size", config.max_batch, 1, kMaxBatch));
  SKEIN_TRY(at_least("sure_batch", config.sure_batch, 0, config.max_batch));
  SKEIN_TRY(at_least("max_queue", config.max_queue, 1, kMaxQueue));
  SKEIN_TRY(at_least("step_tokens", config.step_tokens, 1, kMaxStepTokens));
  SKEIN_TRY(at_least("max_context", config.max_context, 2, kMaxContext));
  SKEIN_TRY(at_least("vocab_size", config.vocab_size, 1, INT32_MAX));
  SKEIN_TRY(at_least("depth", config.depth, 1, 2));
  SKEIN_TRY(at_least("step_drafts", config.step_drafts, 0, kMaxStepTokens));
  SKEIN_TRY(
      at_least("us_per_class", static_cast<uint64_t>(config.us_per_class), 1, kMaxUsPerClass));
  SKEIN_TRY(at_least("max_slowdown_percent", config.max_slowdown_percent, 0, kMaxSlowdownPercent));
  if (config.inter_token_target_us < 0) {
    return invalid_argument("inter_token_target_us is {}; it must be 0 or more",
                            config.inter_token_target_us);
  }
  try {
    return std::unique_ptr<ContinuousBatchingScheduler>(new ContinuousBatchingScheduler(config));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory for the tables of {} KV blocks", config.pool_blocks);
  }
}

ContinuousBatchingScheduler::ContinuousBatchingScheduler(const SchedulerConfig& config)
    : config_(config),
      kv_({config.pool_blocks, config.prefix_cache, config.hash_key, config.kv_events}),
      queue_(config.us_per_class),
      in_flight_(config.depth),
      tally_(config.pool_blocks, 0) {
  asked_.fill(kNever);
  batch_.reserve(config.max_batch);
  by_key_.reserve(config.max_batch);
  ending_.reserve(size_t{config.max_batch} * config.depth);
  for (InFlight& plan : in_flight_) plan.segments.reserve(config.max_batch);
  under_way_.reserve(size_t{config.max_batch} * (config.depth + 1));
  preempted_.reserve(config.max_batch);
  admitted_.reserve(config.max_batch);
  prefills_.reserve(config.max_batch);
  victims_.reserve(config.max_batch);
  hits_.reserve(config.pool_blocks);
}

TimeUs ContinuousBatchingScheduler::advance(TimeUs now) {
  // A clock that steps back must not reorder anyone.
  return now_ = std::max(now_, now);
}

Status ContinuousBatchingScheduler::validate(const RequestSpec& spec) const {
  if (draining_) return unavailable("the engine is draining and takes no new requests");
  if (by_id_.contains(spec.id)) return already_exists("request {} is live already", spec.id.value);
  SKEIN_TRY(check_spec(config_, spec));
  if (queue_.size() >= config_.max_queue) {
    return resource_exhausted("{} requests wait; the queue holds {}", queue_.size(),
                              config_.max_queue);
  }
  return {};
}

Status ContinuousBatchingScheduler::submit(RequestSpec spec, TimeUs now) {
  advance(now);
  // All memory this request will ever need is taken here, so that no step has to allocate and a
  // shortage refuses this request alone.
  BatchRequest* request = nullptr;
  try {
    if (Status status = validate(spec); !status.ok()) {
      ++counters_.refused;
      return status;
    }
    reserve_one_more(unused_slots_, slots_.size());
    request = take_slot();
    request->prompt_tokens = static_cast<uint32_t>(spec.prompt.size());
    request->limit_tokens = limit_of(spec);
    request->tokens = std::move(spec.prompt);
    request->tokens.reserve(request->limit_tokens);
    request->drafts.reserve(config_.step_drafts);
    request->odds.reserve(config_.step_drafts);
    request->table.reset(spec.salt, config_.whole ? 0 : request->limit_tokens,
                         !spec.wants_every_row && !config_.whole);
    queue_.reserve_one_more(by_id_.size());
    deadlines_.reserve_one_more(by_id_.size());
    by_id_.emplace(spec.id, request);
  } catch (const std::bad_alloc&) {
    if (request != nullptr) retire(*request);
    ++counters_.refused;
    return {Code::kResourceExhausted, "out of memory"};  // short enough not to allocate
  }
  request->id = spec.id;
  request->priority = spec.priority;
  request->ends_when_computed = spec.ends_when_computed;
  request->plans_ahead = spec.plans_ahead;
  request->second_from = spec.second_from;
  request->arrival = now_;
  request->deadline = spec.deadline;
  request->key = queue_.key_for(now_, spec.priority);
  request->order = next_order_++;
  asked_[static_cast<size_t>(spec.priority)] = now_;
  enqueue(*request);
  if (request->deadline != kNever) deadlines_.add(*request);
  ++counters_.submitted;
  return {};
}

// How many tokens it may come to have.
uint32_t ContinuousBatchingScheduler::limit_of(const RequestSpec& spec) const {
  const uint64_t prompt = spec.prompt.size();
  const uint64_t room =
      std::min<uint64_t>(config_.max_context, uint64_t{config_.pool_blocks} * kBlockTokens);
  if (spec.ends_when_computed) return static_cast<uint32_t>(prompt);
  return static_cast<uint32_t>(spec.max_new_tokens ? prompt + *spec.max_new_tokens : room);
}

BatchRequest* ContinuousBatchingScheduler::take_slot() {
  if (unused_slots_.empty()) return &slots_.emplace_back();
  BatchRequest* request = unused_slots_.back();
  unused_slots_.pop_back();
  return request;
}

void ContinuousBatchingScheduler::enqueue(BatchRequest& request) {
  request.status = RequestStatus::WAITING;
  request.queue_handle = queue_.push(request.priority, {request.key, request.order, &request});
}

// Takes a request out of every order at once. Its blocks go back now, or when the last plan that
// names them commits.
void ContinuousBatchingScheduler::end(BatchRequest& request, FinishReason reason) {
  if (request.status == RequestStatus::WAITING) queue_.erase(request.queue_handle);
  deadlines_.remove(request);
  const bool was_running = request.runs();
  request.status = is_completed(reason) ? RequestStatus::COMPLETED : RequestStatus::CANCELLED;
  ++(is_completed(reason) ? counters_.completed : counters_.cancelled);
  by_id_.erase(request.id);
  if (request.segments_in_flight > 0)
    ending_.push_back(&request);
  else if (!was_running)
    retire(request);
  // A running request without segments in flight retires in drop_ended_from_batch(), which the
  // caller runs once for all that ended.
}

void ContinuousBatchingScheduler::retire(BatchRequest& request) {
  kv_.release(request.table);
  request = BatchRequest{};
  unused_slots_.push_back(&request);
}

// In order of admission: the free list, and so every later plan, depends on it.
void ContinuousBatchingScheduler::drop_ended_from_batch() {
  std::erase_if(by_key_, [](const BatchRequest* request) { return request->ended(); });
  std::erase_if(batch_, [&](BatchRequest* request) {
    if (!request->ended()) return false;
    if (request->segments_in_flight == 0) retire(*request);
    return true;
  });
}

bool ContinuousBatchingScheduler::cancel(RequestId id, FinishReason reason) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return false;
  BatchRequest& request = *it->second;
  const bool was_running = request.runs();
  end(request, reason);
  if (was_running) drop_ended_from_batch();
  return true;
}

void ContinuousBatchingScheduler::cancel_all(FinishReason reason, std::vector<EndEvent>& ended) {
  for (BatchRequest* request : batch_) {
    ended.push_back({request->id, reason});
    end(*request, reason);
  }
  drop_ended_from_batch();
  while (!queue_.empty()) {
    BatchRequest& request = *queue_.top().request;
    ended.push_back({request.id, reason});
    end(request, reason);
  }
}

void ContinuousBatchingScheduler::commit(const StepResult& result, TimeUs now,
                                         StepEffects& effects) {
  advance(now);
  effects.reset(config_.max_batch, config_.step_drafts);
  SKEIN_CHECK(in_flight_count_ > 0, "commit of step {} with no plan in flight", result.step);
  InFlight& plan = in_flight_[in_flight_first_];
  SKEIN_CHECK(plan.step == result.step, "commit of step {}, oldest in flight is {}", result.step,
              plan.step);
  const std::span<const SegmentResult> results = result.segments();
  SKEIN_CHECK(plan.segments.size() == results.size(), "step {} has {} segments, its result {}",
              plan.step, plan.segments.size(), results.size());
  cost_.observe(plan.load, result.elapsed_us);
  if (plan.load.tokens == 1) {
    one_row_us_ = one_row_us_ == 0 ? result.elapsed_us : (7 * one_row_us_ + result.elapsed_us) / 8;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    commit_segment(*plan.segments[i].request, plan.segments[i].segment, results[i], effects);
  }
  committed_step_ = plan.step;
  std::erase_if(under_way_, [&](const UnderWay& u) { return u.step <= committed_step_; });
  in_flight_first_ = (in_flight_first_ + 1) % config_.depth;
  --in_flight_count_;
  if (!effects.ended.empty()) drop_ended_from_batch();
  std::erase_if(ending_, [&](BatchRequest* request) {
    if (request->segments_in_flight > 0) return false;
    retire(*request);
    return true;
  });
}

void ContinuousBatchingScheduler::commit_segment(BatchRequest& request, const Segment& segment,
                                                 const SegmentResult& result,
                                                 StepEffects& effects) {
  --request.segments_in_flight;
  if (segment.samples > 0) --request.pending_samples;
  request.drafts_in_flight -= static_cast<uint32_t>(segment.drafts.size());
  if (request.ended()) {
    counters_.wasted_tokens += result.tokens.size();
    return;
  }
  if (!is_sound(request, segment, result)) {
    effects.ended.push_back({request.id, FinishReason::kError});
    end(request, FinishReason::kError);
    return;
  }
  if (result.outcome == SegmentOutcome::kPutOff) return put_off(request, segment);
  request.tokens.insert(request.tokens.end(), result.tokens.begin(), result.tokens.end());
  // Of the drafts, those count as computed after which a token was sampled: they came true.
  const auto more = static_cast<uint32_t>(result.tokens.size());
  const uint32_t right = result.outcome == SegmentOutcome::kStop ? more : std::max(more, 1U) - 1;
  request.computed = segment.known_end() + right;
  if (!segment.drafts.empty()) {
    request.planned = request.computed;
    request.accepted_tokens += right;
    counters_.accepted_tokens += right;
  }
  kv_.publish(request.table, request.tokens, request.computed, request.segments_in_flight > 0);
  if (segment.samples > 0) accept_tokens(request, result, effects);
  if (segment.ends) {
    effects.ended.push_back({request.id, FinishReason::kStop});
    end(request, FinishReason::kStop);
  }
  take_drafts(request, result);
}

// Whether this can be what came of that segment: tokens of the vocabulary, no more than samples,
// all but the last of them drafts.
bool ContinuousBatchingScheduler::is_sound(const BatchRequest& request, const Segment& segment,
                                           const SegmentResult& result) const {
  if (result.outcome == SegmentOutcome::kFault) return false;
  const std::vector<TokenId>& tokens = result.tokens;
  // Nobody else may be at work on the rows that come again.
  if (result.outcome == SegmentOutcome::kPutOff) {
    return segment.samples > 0 && tokens.empty() && request.segments_in_flight == 0;
  }
  if (segment.samples == 0) return tokens.empty();
  const size_t samples = tokens.size() + (result.outcome == SegmentOutcome::kStop ? 1 : 0);
  if (samples == 0 || samples > segment.samples) return false;
  return std::all_of(tokens.begin(), tokens.end(), [&](TokenId t) { return in_vocabulary(t); }) &&
         std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(samples - 1),
                    request.drafts.begin());
}

void ContinuousBatchingScheduler::accept_tokens(BatchRequest& request, const SegmentResult& result,
                                                StepEffects& effects) {
  auto index =
      static_cast<uint32_t>(request.tokens.size() - result.tokens.size()) - request.prompt_tokens;
  for (const TokenId token : result.tokens) effects.tokens.push_back({request.id, index++, token});
  counters_.generated_tokens += result.tokens.size();
  request.status = RequestStatus::RUNNING;
  const bool complete = result.outcome != SegmentOutcome::kOk;
  if (!complete && request.tokens.size() < request.limit_tokens) return;
  const FinishReason reason = complete ? FinishReason::kStop : FinishReason::kLength;
  effects.ended.push_back({request.id, reason});
  end(request, reason);
}

// One step's decision. Requests are chosen best key first, so whoever has to give way has not been
// chosen yet; they are written out in order of admission.

namespace {

// Blocks that a running request takes beyond its table: for tokens it has already, and one to grow.
uint32_t blocks_to_come(const BatchRequest& request) {
  const uint64_t held = request.table.size();
  const uint64_t wanted = std::max(held, blocks_for(request.total()));
  const bool grows = request.limit_tokens - 1 > wanted * kBlockTokens;
  return static_cast<uint32_t>(wanted - held) + (grows ? 1 : 0);
}

// The place of its next token is known, and so is what that token depends on.
bool can_be_planned(const BatchRequest& r) {
  return r.pending_samples == 0 || (r.plans_ahead && r.drafts_in_flight == 0);
}

}  // namespace

void ContinuousBatchingScheduler::plan(TimeUs now, StepPlan& plan) {
  advance(now);
  SKEIN_CHECK(in_flight_count_ < config_.depth, "{} plans in flight at depth {}", in_flight_count_,
              config_.depth);
  plan.reset(++step_, config_.max_batch);
  preempted_.clear();
  admitted_.clear();
  expire(plan);
  const StepLoad decodes = plan_decodes();
  StepBudget budget(cost_,
                    {.tokens = config_.step_tokens,
                     .target_us = config_.inter_token_target_us,
                     // A text that comes whole cannot be cut for anybody.
                     .slowdown_percent = config_.whole ? 0 : config_.max_slowdown_percent},
                    decodes);
  plan_prefills(budget);
  if (config_.step_drafts > 0) plan_drafts(budget, decodes);
  emit(plan);
}

void ContinuousBatchingScheduler::expire(StepPlan& plan) {
  while (BatchRequest* request = deadlines_.due(now_)) {
    plan.ended.push_back({request->id, FinishReason::kTimedOut});
    ++counters_.deadlines;
    end(*request, FinishReason::kTimedOut);
  }
  if (!plan.ended.empty()) drop_ended_from_batch();
}

StepLoad ContinuousBatchingScheduler::plan_decodes() {
  StepLoad load;
  prefills_.clear();
  streams_ = {};
  for (BatchRequest* request : by_key_) request->step_tokens = request->step_drafts = 0;
  // By index: growing may preempt from the back.
  for (size_t i = 0; i < by_key_.size(); ++i) {
    BatchRequest& request = *by_key_[i];
    request.wait = WaitReason::kNone;
    if (!can_be_planned(request)) continue;
    if (request.put_off) {
      request.wait = WaitReason::kDrawUnderWay;
    } else if (!request.decodes()) {
      if (request.planned < request.total()) prefills_.push_back(&request);
    } else if (request.held_in_step == step_) {
      request.wait = WaitReason::kHeldBack;
    } else if (!request.at_limit() && grow_or_preempt(request, uint64_t{request.planned} + 1)) {
      request.step_tokens = 1;
      load.add(request.planned, 1);
    }
  }
  // Those that have no row in this step wait for its end, too.
  for (const BatchRequest* request : by_key_) {
    if (request->decodes() && !request->at_limit()) streams_.add(*request);
  }
  return load;
}

// False: the head stays where it is, and nobody behind it is tried.
bool ContinuousBatchingScheduler::admit_head(StepBudget& budget) {
  BatchRequest& head = *queue_.top().request;
  if (config_.whole && budget.fit(0, head.prompt_tokens) < head.prompt_tokens) {
    head.wait = WaitReason::kStepBudget;
    return false;
  }
  if (!make_room_for_head(head)) return false;
  queue_.pop();
  head.status = RequestStatus::PREFILLING;
  admitted_.push_back(head.id);
  batch_.push_back(&head);
  if (config_.sure_batch > 0 && batch_.size() > config_.sure_batch) grew_in_step_ = step_;
  const auto before = [](const BatchRequest* a, const BatchRequest* b) {
    return goes_before(*a, *b);
  };
  by_key_.insert(std::upper_bound(by_key_.begin(), by_key_.end(), &head, before), &head);

  if (head.preemptions == 0) counters_.prompt_tokens += head.prompt_tokens;
  if (head.table.shares()) counters_.prefix_query_tokens += head.tokens.size();
  if (look_up(head) > 0) ++counters_.admission_hits;
  plan_chunk(head, budget);
  return true;
}

bool ContinuousBatchingScheduler::make_room_for_head(BatchRequest& head) {
  kv_.match(head.table, head.tokens, hits_);
  const uint64_t whole = config_.whole ? 0 : blocks_for(head.tokens.size());
  const auto own = static_cast<uint32_t>(whole - hits_.size());
  const auto idle_hits =
      std::count_if(hits_.begin(), hits_.end(), [&](BlockId id) { return kv_.refs(id) == 0; });
  head_room_ = {own + static_cast<uint32_t>(idle_hits), kv_.available()};
  for (const BatchRequest* request : batch_) {
    if (!config_.whole) head_room_.needed += blocks_to_come(*request);
  }

  const bool batch_full = batch_is_full();
  if (!batch_full && head_room_.needed <= head_room_.available) return true;
  head.wait = batch_full ? WaitReason::kBatchFull : WaitReason::kNoBlocks;
  // Blocks of requests that have ended come back by themselves when their step commits; and so do
  // the places of requests that end with it.
  if (config_.whole || !ending_.empty() || !choose_victims(head, head_room_)) return false;

  const auto in_flight = [](const BatchRequest* victim) { return victim->segments_in_flight > 0; };
  if (std::any_of(victims_.begin(), victims_.end(), in_flight)) {
    for (BatchRequest* victim : victims_) hold_back(*victim);
    return false;
  }
  for (BatchRequest* victim : victims_) {
    preempt(*victim);
    ++counters_.class_preemptions;
  }
  return true;
}

// Running requests of strictly worse class and key, worst first, until the head would fit in their
// place. False, and nothing to do, if all of them together do not make room.
bool ContinuousBatchingScheduler::choose_victims(const BatchRequest& head, const Room& short_of) {
  victims_.clear();
  Room room = short_of;
  bool fits = false;
  for (auto it = by_key_.rbegin(); it != by_key_.rend() && goes_before(head, **it) && !fits; ++it) {
    BatchRequest& victim = **it;
    if (victim.priority <= head.priority) continue;
    victims_.push_back(&victim);
    room.needed -= blocks_to_come(victim);
    for (const BlockId id : victim.table.blocks())
      room.available += ++tally_[id.value] == kv_.refs(id) ? 1 : 0;
    // A hit that only victims hold becomes idle, and taking it then uses up what they give back.
    const auto idle = std::count_if(hits_.begin(), hits_.end(), [&](BlockId id) {
      return tally_[id.value] > 0 && tally_[id.value] == kv_.refs(id);
    });
    fits = room.needed + static_cast<uint32_t>(idle) <= room.available;
  }
  for (const BatchRequest* victim : victims_) {
    for (const BlockId id : victim->table.blocks()) tally_[id.value] = 0;
  }
  return fits;
}

// Cached blocks go first (grow() takes them); then the running request with the worst key gives
// way, if need be the one that asks.
bool ContinuousBatchingScheduler::grow_or_preempt(BatchRequest& request, uint64_t tokens) {
  while (!kv_.grow(request.table, tokens)) {
    request.wait = WaitReason::kNoBlocks;
    if (!ending_.empty()) return false;
    BatchRequest& victim = *by_key_.back();
    if (victim.segments_in_flight > 0) {
      hold_back(victim);
      return false;
    }
    preempt(victim);
    if (&victim == &request) return false;
  }
  request.wait = WaitReason::kNone;
  return true;
}

void ContinuousBatchingScheduler::preempt(BatchRequest& request) {
  kv_.release(request.table);
  request.computed = request.planned = request.step_tokens = 0;
  request.put_off = false;
  request.drafts.clear();
  request.odds.clear();
  ++request.preemptions;
  ++counters_.preemptions;
  preempted_.push_back(request.id);
  std::erase(batch_, &request);
  std::erase(by_key_, &request);
  enqueue(request);
}

// The blocks of a request with a step in flight are being written; it gets no segment in this plan,
// so that the next one can preempt it.
void ContinuousBatchingScheduler::hold_back(BatchRequest& request) {
  request.held_in_step = step_;
  request.step_tokens = 0;
  request.wait = WaitReason::kHeldBack;
}

void ContinuousBatchingScheduler::emit(StepPlan& plan) {
  plan.preempted.assign(preempted_.begin(), preempted_.end());
  plan.admitted.assign(admitted_.begin(), admitted_.end());
  InFlight& record = in_flight_[(in_flight_first_ + in_flight_count_) % config_.depth];
  record.step = plan.step;
  record.load = {};
  record.segments.clear();
  for (BatchRequest* request : batch_) {
    if (request->step_tokens == 0) continue;
    const uint32_t start = request->planned;
    const uint32_t drafts = request->step_drafts;
    const uint32_t count = request->step_tokens + drafts;
    const bool to_the_end = start + request->step_tokens == request->total();
    Segment segment;
    segment.request = request->id;
    segment.start = start;
    segment.count = count;
    segment.samples = to_the_end && !request->ends_when_computed ? 1 + drafts : 0;
    segment.ends = to_the_end && request->ends_when_computed;
    segment.wants_every_row = !request->table.shares();
    segment.second_from = request->second_from;
    segment.writes_kv = start >= request->table.linked_tokens();
    segment.token_from_previous = start >= request->tokens.size();
    if (!segment.token_from_previous)
      segment.tokens = std::span(request->tokens).subspan(start, request->step_tokens);
    segment.drafts = std::span(request->drafts).first(drafts);
    segment.blocks = request->table.blocks();
    plan.segments.push_back(segment);
    plan.tokens += count;

    record.load.add(start, count);
    record.load.unsampled += count - segment.samples;
    record.segments.push_back({request, segment});
    request->planned += count;
    request->drafted_tokens += drafts;
    counters_.drafted_tokens += drafts;
    counters_.drafts += drafts > 0 ? 1 : 0;
    request->pending_samples += segment.samples > 0 ? 1 : 0;
    request->drafts_in_flight += drafts;
    ++request->segments_in_flight;
  }
  if (plan.empty()) return;
  ++in_flight_count_;
  ++counters_.steps;
  counters_.computed_tokens += plan.tokens;
}

}  // namespace skein
