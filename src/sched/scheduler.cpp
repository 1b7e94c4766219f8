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
      kv_({config.pool_blocks, config.prefix_cache, config.hash_key}),
      queue_(config.us_per_class),
      in_flight_(config.depth),
      tally_(config.pool_blocks, 0) {
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

Status ContinuousBatchingScheduler::check_spec(const SchedulerConfig& config,
                                               const RequestSpec& spec) {
  if (static_cast<uint32_t>(spec.priority) >= kPriorities) {
    return invalid_argument("priority {} is not one of {} classes",
                            static_cast<uint32_t>(spec.priority), kPriorities);
  }
  if (spec.prompt.empty()) return invalid_argument("the prompt has 0 tokens; it needs at least 1");
  const bool samples = !spec.ends_when_computed;
  if (samples && spec.max_new_tokens == 0U)
    return invalid_argument("max_tokens is 0; it must be at least 1");
  for (size_t i = 0; i < spec.prompt.size(); ++i) {
    if (spec.prompt[i] < 0 || static_cast<uint32_t>(spec.prompt[i]) >= config.vocab_size) {
      return invalid_argument("prompt token {} has id {}; the vocabulary has {}", i, spec.prompt[i],
                              config.vocab_size);
    }
  }
  const uint64_t answer = samples ? spec.max_new_tokens.value_or(1) : 0;
  const uint64_t pool = uint64_t{config.pool_blocks} * kBlockTokens;
  const auto never_fits = [&](std::string_view what, uint64_t holds) {
    return out_of_range("prompt of {} tokens plus {} to generate is {}; the {} holds {}",
                        spec.prompt.size(), answer, spec.prompt.size() + answer, what, holds);
  };
  if (spec.prompt.size() + answer > config.max_context)
    return never_fits("context", config.max_context);
  if (spec.prompt.size() + answer > pool) return never_fits("KV pool", pool);
  return {};
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
    request->table.reset(spec.salt, request->limit_tokens);
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
  request->salt = spec.salt;
  request->ends_when_computed = spec.ends_when_computed;
  request->plans_ahead = spec.plans_ahead;
  request->arrival = now_;
  request->deadline = spec.deadline;
  request->key = queue_.key_for(now_, spec.priority);
  request->order = next_order_++;
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
  request.tokens.insert(request.tokens.end(), result.tokens.begin(), result.tokens.end());
  // Of the drafts, those count as computed after which a token was sampled: they came true.
  const auto more = static_cast<uint32_t>(result.tokens.size());
  const uint32_t right = result.outcome == SegmentOutcome::kStop ? more : std::max(more, 1U) - 1;
  request.computed = segment.known_end() + right;
  if (!segment.drafts.empty()) request.planned = request.computed;
  kv_.publish(request.table, request.tokens, request.computed);
  if (segment.samples > 0) accept_tokens(request, result, effects);
  if (segment.ends) {
    effects.ended.push_back({request.id, FinishReason::kStop});
    end(request, FinishReason::kStop);
  }
  take_drafts(request, result.drafts);
}

// Whether this can be what came of that segment: tokens of the vocabulary, no more than samples,
// all but the last of them drafts.
bool ContinuousBatchingScheduler::is_sound(const BatchRequest& request, const Segment& segment,
                                           const SegmentResult& result) const {
  if (result.outcome == SegmentOutcome::kFault) return false;
  const std::vector<TokenId>& tokens = result.tokens;
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

// Where a plan is ahead of the token that they guess, its commit brings others.
void ContinuousBatchingScheduler::take_drafts(BatchRequest& request,
                                              std::span<const TokenId> drafts) const {
  request.drafts.clear();
  if (request.status != RequestStatus::RUNNING) return;
  for (const TokenId token : drafts.first(std::min<size_t>(drafts.size(), config_.step_drafts))) {
    if (!in_vocabulary(token)) break;
    request.drafts.push_back(token);
  }
}

}  // namespace skein
