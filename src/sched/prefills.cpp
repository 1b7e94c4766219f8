// The prompts of a step: whose rows it computes beside those that decode, and how many of them.
#include <algorithm>

#include "sched/scheduler.h"

namespace skein {

// A stream of the prompt's class or a better one, or that has aged past it, is spared. One of
// strictly worse class and key is not: to cut the prompt for its sake would cost the better class a
// whole step of such streams. And a better class that asks is spared, that is, one that has asked
// within the last class gap: its next request may come while this step runs.
Spares ContinuousBatchingScheduler::spares(const BatchRequest& prompt) const {
  const bool spares_stream = streams_.first != nullptr && (streams_.best_class <= prompt.priority ||
                                                           goes_before(*streams_.first, prompt));
  if (spares_stream) return Spares::kStream;
  const auto better = asked_.begin() + static_cast<ptrdiff_t>(prompt.priority);
  const bool spares_asker = std::any_of(asked_.begin(), better, [&](TimeUs asked) {
    return asked != kNever && now_ - asked <= config_.us_per_class;
  });
  return spares_asker ? Spares::kAsker : Spares::kNobody;
}

// Running prefills and the head of the queue compete for the budget by key, so that a long prompt
// of a low class does not keep a short one of a better class from starting.
void ContinuousBatchingScheduler::plan_prefills(StepBudget& budget) {
  const auto takes_part = [&](const BatchRequest* r) {
    return r->status == RequestStatus::PREFILLING && r->step_tokens == 0 &&
           r->held_in_step != step_;
  };
  bool head_blocked = false;
  auto next = prefills_.begin();
  while (true) {
    next = std::find_if(next, prefills_.end(), takes_part);
    const bool none_runs = next == prefills_.end();
    const bool head_is_next = !head_blocked && !queue_.empty() &&
                              (none_runs || goes_before(*queue_.top().request, **next));
    if (none_runs && !head_is_next) break;
    BatchRequest& first = head_is_next ? *queue_.top().request : **next;
    if (budget.spent(Spares::kNobody)) break;
    if (budget.spent(spares(first))) {  // somebody of a better class behind it may have some
      first.wait = WaitReason::kStepBudget;
      head_blocked = head_blocked || head_is_next;
      if (!head_is_next) ++next;
    } else if (head_is_next) {
      head_blocked = !admit_head(budget);
    } else {
      plan_chunk(**next++, budget);
    }
  }
  for (; next != prefills_.end(); ++next) {
    if (takes_part(*next)) (*next)->wait = WaitReason::kStepBudget;
  }
  if (!head_blocked && !queue_.empty()) queue_.top().request->wait = WaitReason::kStepBudget;
}

void ContinuousBatchingScheduler::plan_chunk(BatchRequest& request, StepBudget& budget) {
  request.wait = WaitReason::kNone;
  if (look_up(request) > 0) ++counters_.prefill_hits;

  const auto known = static_cast<uint32_t>(request.tokens.size());
  const uint32_t start = request.planned;
  // The block that this chunk begins or goes on with, if others could share it when it is full.
  const uint32_t linked = request.table.linked_tokens();
  const bool shareable = kv_.shares(request.table) &&
                         start / kBlockTokens == linked / kBlockTokens &&
                         linked + kBlockTokens <= known;
  Hash128 key;
  if (shareable) {
    key = kv_.next_key(request.table, request.tokens);
    if (start == linked && under_way(key)) {
      request.wait = WaitReason::kPrefixUnderWay;
      return;
    }
  }
  uint32_t end = start + budget.fit(start, known - start, spares(request));
  // A chunk that does not finish ends at a block border, where the next one can look the cache up.
  if (end < known && end / kBlockTokens * kBlockTokens > start)
    end = end / kBlockTokens * kBlockTokens;
  if (end == start) {
    request.wait = WaitReason::kStepBudget;
    return;
  }
  if (!config_.whole && !grow_or_preempt(request, end)) return;
  request.step_tokens = end - start;
  budget.spend(start, end - start);
  if (shareable) under_way_.push_back({key, step_});
}

// Takes whatever the prefix cache has for the tokens that come next; returns the tokens saved.
uint32_t ContinuousBatchingScheduler::look_up(BatchRequest& request) {
  const BlockTable& table = request.table;
  if (request.planned != table.linked_tokens() || table.size() != table.linked_blocks()) return 0;
  if (kv_.take_cached(request.table, request.tokens) == 0) return 0;
  const auto known = static_cast<uint32_t>(request.tokens.size());
  // A sample needs the logits of the last token, so that one is computed even if it is cached.
  const uint32_t planned = std::min(table.linked_tokens(), known - 1);
  if (planned < table.linked_tokens()) ++counters_.full_hits;
  const uint32_t saved = planned - request.planned;
  request.planned = request.computed = planned;
  counters_.prefix_hit_tokens += saved;
  if (request.preemptions == 0) request.cached_tokens += saved;
  return saved;
}

bool ContinuousBatchingScheduler::under_way(const Hash128& key) const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const UnderWay& u) { return u.key == key; });
}

}  // namespace skein
