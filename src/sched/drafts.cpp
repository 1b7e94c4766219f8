// Guesses at a request's next tokens: what is kept of them, and which of them a step computes.
#include <algorithm>

#include "sched/scheduler.h"

namespace skein {
namespace {

bool is_prompt(const BatchRequest* request) {
  return request->step_tokens > 0 && !request->decodes();
}

// Whether there is one more for it to compute in the step that is being planned.
bool has_draft_left(const BatchRequest& r) {
  if (r.step_tokens == 0 || r.pending_samples > 0 || r.step_drafts >= r.drafts.size()) return false;
  return r.total() + r.step_drafts + 1 < r.limit_tokens;  // a token more is sampled than guessed
}

uint16_t next_odds(const BatchRequest& r) {
  return r.odds.empty() ? DraftValue::kCertain : r.odds[r.step_drafts];
}

uint32_t next_position(const BatchRequest& r) {
  return r.planned + r.step_tokens + r.step_drafts;
}

}  // namespace

// Where a plan is ahead of the token that they guess, its commit brings others.
void ContinuousBatchingScheduler::take_drafts(BatchRequest& request,
                                              const SegmentResult& result) const {
  request.drafts.clear();
  request.odds.clear();
  if (request.status != RequestStatus::RUNNING) return;
  size_t count = std::min<size_t>(result.drafts.size(), config_.step_drafts);
  if (!result.odds.empty()) count = std::min(count, result.odds.size());
  for (size_t i = 0; i < count; ++i) {
    if (!in_vocabulary(result.drafts[i])) break;
    request.drafts.push_back(result.drafts[i]);
    if (!result.odds.empty()) request.odds.push_back(result.odds[i]);
  }
}

// Who has the likeliest one that is not taken yet; nullptr: nobody has any.
BatchRequest* ContinuousBatchingScheduler::likeliest_draft() const {
  BatchRequest* best = nullptr;
  for (BatchRequest* request : by_key_) {
    if (!has_draft_left(*request)) continue;
    if (best == nullptr || next_odds(*request) > next_odds(*best)) best = request;
  }
  return best;
}

// Guesses get what nobody else wants: the tokens that a step without prompts has left. First it is
// found how many are worth it, likeliest first, and then they are taken as far as there is room.
void ContinuousBatchingScheduler::plan_drafts(StepBudget& budget, const StepLoad& decodes) {
  if (std::any_of(by_key_.begin(), by_key_.end(), is_prompt)) return;
  DraftValue value(cost_, decodes, static_cast<uint32_t>(decodes.tokens));
  for (uint32_t i = 0; i < config_.step_drafts; ++i) {
    BatchRequest* const request = likeliest_draft();
    if (request == nullptr) break;
    value.add(next_position(*request), next_odds(*request));
    ++request->step_drafts;
  }
  for (BatchRequest* request : by_key_) request->step_drafts = 0;
  for (uint32_t left = value.best(); left > 0; --left) {
    BatchRequest* const request = likeliest_draft();
    if (request == nullptr) return;
    const uint32_t position = next_position(*request);
    if (!budget.fits(position)) return;
    if (!has_room_for_draft(*request, position)) {
      request->drafts.resize(request->step_drafts);
      continue;
    }
    ++request->step_drafts;
    budget.spend(position, 1);
  }
}

// In blocks that it holds anyway, or in the one that comes next for it, where there are plenty.
bool ContinuousBatchingScheduler::has_room_for_draft(BatchRequest& request, uint32_t position) {
  if (position < request.table.size() * kBlockTokens) return true;
  const bool somebody_waits =
      !queue_.empty() && queue_.top().request->wait == WaitReason::kNoBlocks;
  return !somebody_waits && kv_.available() > 2 * by_key_.size() &&
         kv_.grow(request.table, uint64_t{position} + 1);
}

}  // namespace skein
