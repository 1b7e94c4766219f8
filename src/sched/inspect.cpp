// Questions to a scheduler that do not change it.
#include <algorithm>
#include <iterator>

#include "sched/scheduler.h"

namespace skein {
namespace {

// Of a full batch: ten tokens a second are faster than anybody reads.
constexpr TimeUs kShortStepUs = 100 * kUsPerMs;

BlockUse use_of(const KvAllocator& kv, BlockId block) {
  if (kv.refs(block) > 1) return BlockUse::kShared;
  if (kv.refs(block) == 1) return BlockUse::kHeld;
  return kv.cached(block) ? BlockUse::kCached : BlockUse::kFree;
}

}  // namespace

Status ContinuousBatchingScheduler::check_spec(const SchedulerConfig& config,
                                               const RequestSpec& spec) {
  if (static_cast<uint32_t>(spec.priority) >= kPriorities) {
    return invalid_argument("priority {} is not one of {} classes",
                            static_cast<uint32_t>(spec.priority), kPriorities);
  }
  if (spec.prompt.empty()) return invalid_argument("the prompt has 0 tokens; it needs at least 1");
  const bool samples = !spec.ends_when_computed;
  if (config.whole && samples) {
    return unimplemented(
        "tokens are asked for; this model is an encoder, which makes vectors alone");
  }
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
  if (config.whole) {
    if (spec.prompt.size() <= config.step_tokens) return {};
    return out_of_range("a text of {} tokens is computed in one step, which holds {}",
                        spec.prompt.size(), config.step_tokens);
  }
  if (spec.prompt.size() + answer > pool) return never_fits("KV pool", pool);
  return {};
}

SchedulerStats ContinuousBatchingScheduler::stats() const {
  SchedulerStats stats = counters_;
  for (uint32_t p = 0; p < kPriorities; ++p) {
    stats.waiting[p] = queue_.size(static_cast<Priority>(p));
    stats.oldest_arrival[p] = queue_.oldest_arrival(static_cast<Priority>(p));
  }
  for (const BatchRequest* request : batch_) {
    ++(request->status == RequestStatus::RUNNING ? stats.running : stats.prefilling);
  }
  stats.pool_blocks = kv_.capacity();
  stats.held_blocks = kv_.capacity() - kv_.available();
  stats.cached_blocks = kv_.cached_blocks();
  stats.evictions = kv_.evictions();
  return stats;
}

uint32_t ContinuousBatchingScheduler::open_slots() const {
  if (!queue_.empty() && queue_.top().request->wait == WaitReason::kNoBlocks) return 0;
  if (batch_is_full()) return 0;
  const auto running = static_cast<uint32_t>(batch_.size());
  if (config_.sure_batch == 0) return config_.max_batch - running;
  return std::max(config_.sure_batch, running + 1) - running;
}

bool ContinuousBatchingScheduler::batch_is_full() const {
  const size_t running = batch_.size();
  if (running >= config_.max_batch) return true;
  if (config_.sure_batch == 0 || running < config_.sure_batch) return false;
  // What one more costs has to be seen before the next.
  if (!cost_.trained() || grew_in_step_ == step_) return true;
  uint64_t tokens = 0;
  StepLoad full;
  for (const BatchRequest* request : batch_) {
    full.add(request->total(), 1);
    tokens += request->total();
  }
  full.add(tokens / running, 1);
  return cost_.predict(full) > std::max(kShortStepUs, 4 * one_row_us_);
}

Result<Explanation> ContinuousBatchingScheduler::explain(RequestId id, TimeUs now) const {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return not_found("request {} is not live", id.value);
  if (it->second->status == RequestStatus::WAITING) number_queue();
  return explain_one(*it->second, now);
}

void ContinuousBatchingScheduler::explain(std::span<const RequestId> ids, TimeUs now,
                                          std::vector<Explanation>& explanations) const {
  number_queue();
  for (const RequestId id : ids) {
    const auto it = by_id_.find(id);
    if (it != by_id_.end()) explanations.push_back(explain_one(*it->second, now));
  }
}

SchedulerView ContinuousBatchingScheduler::view(TimeUs now) const {
  SchedulerView view;
  number_queue();
  view.requests.reserve(std::min<size_t>(by_id_.size(), SchedulerView::kMaxRequests));
  const auto add = [&](const BatchRequest& request) {
    if (view.requests.size() >= SchedulerView::kMaxRequests) return;
    view.requests.push_back(explain_one(request, now));
  };
  for (const BatchRequest* request : batch_) add(*request);
  queue_.visit([&](const PriorityQueueWithAging::Entry& entry) { add(*entry.request); });
  view_blocks(view);
  return view;
}

void ContinuousBatchingScheduler::view_blocks(SchedulerView& view) const {
  const uint32_t pool = kv_.capacity();
  view.cell_blocks = std::max(1U, (pool + SchedulerView::kMaxCells - 1) / SchedulerView::kMaxCells);
  view.cells.resize((pool + view.cell_blocks - 1) / view.cell_blocks);
  for (uint32_t cell = 0; cell < view.cells.size(); ++cell) {
    uint32_t counts[kBlockUses] = {};
    const uint32_t first = cell * view.cell_blocks;
    for (uint32_t block = first; block < std::min(pool, first + view.cell_blocks); ++block) {
      ++counts[static_cast<size_t>(use_of(kv_, BlockId{block}))];
    }
    const auto* const most = std::max_element(std::begin(counts), std::end(counts));
    view.cells[cell].use = static_cast<BlockUse>(most - std::begin(counts));
  }
  // Whoever runs stands at the beginning of the requests.
  const size_t shown = std::min(batch_.size(), view.requests.size());
  for (size_t i = 0; i < shown; ++i) {
    for (const BlockId block : batch_[i]->table.blocks()) {
      view.cells[block.value / view.cell_blocks].holder = static_cast<uint32_t>(i);
    }
  }
}

void ContinuousBatchingScheduler::number_queue() const {
  uint32_t position = 0;
  queue_.visit([&](const PriorityQueueWithAging::Entry& entry) {
    entry.request->queue_position = ++position;
  });
}

// The queue has been numbered if it waits.
Explanation ContinuousBatchingScheduler::explain_one(const BatchRequest& request,
                                                     TimeUs now) const {
  now = std::max(now, now_);
  Explanation e;
  e.id = request.id;
  e.status = request.status;
  e.priority = request.priority;
  e.effective_priority_milli =
      queue_.effective_priority_milli(request.arrival, request.priority, now);
  e.waited_us = now - request.arrival;
  e.prompt_tokens = request.prompt_tokens;
  e.generated_tokens = static_cast<uint32_t>(request.tokens.size()) - request.prompt_tokens;
  e.computed_tokens = request.computed;
  e.cached_tokens = request.cached_tokens;
  e.drafted_tokens = request.drafted_tokens;
  e.accepted_tokens = request.accepted_tokens;
  e.blocks = request.table.size();
  e.preemptions = request.preemptions;
  e.wait = request.wait;
  if (request.status == RequestStatus::WAITING) {
    e.queue_position = request.queue_position;
    if (e.queue_position > 1) e.wait = WaitReason::kBehindOthers;
  }
  if (e.wait == WaitReason::kNoBlocks && request.status == RequestStatus::WAITING) {
    e.blocks_needed = head_room_.needed;
    e.blocks_available = head_room_.available;
  } else if (e.wait == WaitReason::kNoBlocks) {
    e.blocks_needed = 1;
    e.blocks_available = kv_.available();
  }
  return e;
}

Status ContinuousBatchingScheduler::check_invariants() const {
  if (batch_.size() > config_.max_batch) {
    return internal_error("{} requests run, at most {} may", batch_.size(), config_.max_batch);
  }
  if (queue_.size() > config_.max_queue + config_.max_batch) {
    return internal_error("{} requests wait, at most {} + {} may", queue_.size(), config_.max_queue,
                          config_.max_batch);
  }
  if (batch_.size() != by_key_.size() || batch_.size() + queue_.size() != by_id_.size()) {
    return internal_error("{} run ({} by key) and {} wait, but {} are live", batch_.size(),
                          by_key_.size(), queue_.size(), by_id_.size());
  }
  const auto worse = [](const BatchRequest* a, const BatchRequest* b) {
    return goes_before(*b, *a);
  };
  if (std::adjacent_find(by_key_.begin(), by_key_.end(), worse) != by_key_.end()) {
    return internal_error("running requests are out of order by key");
  }
  uint32_t segments = 0;
  std::vector<const BlockTable*> tables;
  for (const BatchRequest* request : batch_) {
    const BatchRequest& r = *request;
    if (!r.runs())
      return internal_error("request {} is in the batch but {}", r.id.value, name_of(r.status));
    const uint32_t total = r.total() + r.drafts_in_flight;
    if (r.computed > r.planned || r.planned > total || total > r.limit_tokens ||
        (!config_.whole && r.planned > uint64_t{r.table.size()} * kBlockTokens)) {
      return internal_error("request {}: computed {}, planned {}, total {}, limit {}, blocks {}",
                            r.id.value, r.computed, r.planned, total, r.limit_tokens,
                            r.table.size());
    }
    if (config_.whole && (r.segments_in_flight != 1 || r.planned != r.prompt_tokens)) {
      return internal_error("request {} runs in part: {} of {} tokens", r.id.value, r.planned,
                            r.prompt_tokens);
    }
    segments += r.segments_in_flight;
    tables.push_back(&r.table);
  }
  for (const BatchRequest* request : ending_) {
    if (!request->ended() || request->segments_in_flight == 0)
      return internal_error("request {} lingers", request->id.value);
    segments += request->segments_in_flight;
    tables.push_back(&request->table);
  }
  uint32_t in_flight_segments = 0;
  for (uint32_t i = 0; i < in_flight_count_; ++i) {
    in_flight_segments +=
        static_cast<uint32_t>(in_flight_[(in_flight_first_ + i) % config_.depth].segments.size());
  }
  if (segments != in_flight_segments)
    return internal_error("requests have {} segments in flight, the plans {}", segments,
                          in_flight_segments);
  if (slots_.size() != by_id_.size() + ending_.size() + unused_slots_.size()) {
    return internal_error("{} slots: {} live, {} ending, {} unused", slots_.size(), by_id_.size(),
                          ending_.size(), unused_slots_.size());
  }
  return kv_.check_invariants(tables);
}

uint32_t ContinuousBatchingScheduler::cached_tokens(std::span<const TokenId> tokens,
                                                    const Hash128& salt) const {
  BlockTable table;
  table.reset(salt, tokens.size());
  std::vector<BlockId> hits;
  kv_.match(table, tokens, hits);
  return static_cast<uint32_t>(hits.size()) * kBlockTokens;
}

}  // namespace skein
