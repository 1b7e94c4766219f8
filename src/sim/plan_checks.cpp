// What must hold of every plan, seen from outside the scheduler.
#include <algorithm>
#include <utility>

#include "sim/simulator.h"

namespace skein::sim {

void Simulator::check_plan(const StepPlan& plan) {
  if (config_.keep_plan_log) log_plan(plan);
  if (plan.rows.size() > config_.scheduler.max_batch) {
    return fail("{} rows in a batch of {}", plan.rows.size(), config_.scheduler.max_batch);
  }
  uint32_t tokens = 0;
  size_t drafts = 0;
  for (const PlanRow& row : plan.rows) {
    tokens += row.count;
    drafts += row.drafts.size();
    check_row(row);
    if (failed()) return;
  }
  if (drafts > config_.scheduler.step_drafts)
    return fail("{} drafts planned, at most {}", drafts, config_.scheduler.step_drafts);
  const uint64_t most = uint64_t{config_.scheduler.step_tokens} + plan.rows.size();
  if (tokens != plan.tokens || tokens > most)
    return fail("{} tokens planned ({} said), at most {}", tokens, plan.tokens, most);
  check_writes(plan);
}

// Who left the queue and who went back to it, checked against what they were before.
void Simulator::check_moves(const StepPlan& plan) {
  for (const RequestId id : plan.preempted) {
    SimRequest* r = find(id);
    if (r == nullptr || !r->in_batch)
      return fail("request {} was preempted but did not run", id.value);
    if (r->rows_in_flight > 0)
      return fail("request {} was preempted with a row in flight", id.value);
    r->planned = r->table_blocks = 0;
    r->drafts.clear();
    r->in_batch = false;
    ++r->preemptions;
  }
  for (const RequestId id : plan.admitted) {
    SimRequest* r = find(id);
    if (r == nullptr || r->in_batch)
      return fail("request {} was admitted but did not wait", id.value);
    check_overtaking(*r);
    r->in_batch = true;
    if (!std::exchange(r->started, true)) leave_door(*r);
    if (r->preemptions > 0) saw(Path::k_resume);
    top_bound_ += r->limit_tokens + 1;  // it was ahead of whoever is first in the queue now
  }
  for (const RequestId id : plan.preempted) check_gave_way(*find(id), plan);
}

// Who gives way has the worst key of all that run, or a worse class and key than one who comes in.
void Simulator::check_gave_way(const SimRequest& preempted, const StepPlan& plan) {
  const auto better = [&](const SimRequest& r) {
    return std::pair(r.key, r.id) < std::pair(preempted.key, preempted.id);
  };
  for (const RequestId id : plan.admitted) {
    const SimRequest& r = *find(id);
    if (r.priority < preempted.priority && better(r)) return;
  }
  for (const auto& other : requests_) {
    const SimRequest& r = *other;
    if (r.ended || !r.in_batch || &r == &preempted || better(r)) continue;
    // It came in after the preempted one itself came in again.
    if (std::find(plan.admitted.begin(), plan.admitted.end(), r.id) != plan.admitted.end())
      continue;
    return fail("request {} was preempted, but {} has a worse key and runs on", preempted.id.value,
                r.id.value);
  }
}

void Simulator::check_row(const PlanRow& row) {
  SimRequest* request = find(row.request);
  if (request == nullptr) return fail("request {} has a row but is not live", row.request.value);
  SimRequest& r = *request;
  if (!r.in_batch) return fail("request {} has a row but waits", r.id.value);
  const uint32_t end = row.start + row.count;
  const uint32_t sure = end - static_cast<uint32_t>(row.drafts.size());
  const auto known = static_cast<uint32_t>(r.tokens.size());
  const uint32_t total = known + r.pending_samples;
  if (sure <= row.start || sure > total)
    return fail("request {}: row {}+{} of {} tokens", r.id.value, row.start, row.count, total);
  if (row.start < r.planned)
    return fail("request {} goes back from {} to {}", r.id.value, r.planned, row.start);
  const size_t samples = sure == total && !r.ends_when_computed ? 1 + row.drafts.size() : 0;
  if (row.samples != samples || row.ends != (sure == total && r.ends_when_computed)) {
    return fail("request {}: row ends at {} of {}, samples {}, ends {}", r.id.value, sure, total,
                row.samples, row.ends);
  }
  if (row.token_from_previous != (row.start >= known))
    return fail("request {}: token {} from the wrong place", r.id.value, row.start);
  if (!row.token_from_previous &&
      !std::equal(row.tokens.begin(), row.tokens.end(), r.tokens.begin() + row.start,
                  r.tokens.begin() + sure)) {
    return fail("request {} would compute the wrong tokens at {}", r.id.value, row.start);
  }
  check_drafts(row, r);
  if (row.blocks.size() < blocks_for(end))
    return fail("request {}: {} blocks for {} tokens", r.id.value, row.blocks.size(), end);
  // What came into the table and is not below the row was not found in the cache: it is fresh.
  if (row.writes_kv) {
    oracle_.poison_blocks(row,
                          std::max(r.table_blocks, static_cast<uint32_t>(blocks_for(row.start))));
  }
  r.table_blocks = static_cast<uint32_t>(row.blocks.size());
  r.planned = end;
  r.pending_samples += row.samples > 0 ? 1 : 0;
  r.drafts_in_flight += static_cast<uint32_t>(row.drafts.size());
  ++r.rows_in_flight;
}

// Drafts are what the last result guessed, and never more than the answer may have; and who depends
// on the last token is not planned ahead of it.
void Simulator::check_drafts(const PlanRow& row, const SimRequest& request) {
  if (row.samples > 0 && request.pending_samples > 0) {
    if (request.constrained)
      return fail("request {} is planned ahead of its constraint", request.id.value);
    if (request.drafts_in_flight > 0)
      return fail("request {} is planned ahead of its drafts", request.id.value);
  }
  if (request.constrained && config_.scheduler.depth == 2) saw(Path::k_not_planned_ahead);
  if (request.drafts.size() > row.drafts.size())
    saw(request.pending_samples > 0 ? Path::k_drafts_too_late : Path::k_drafts_cut);
  const std::span<const TokenId> drafts = row.drafts;
  if (drafts.empty()) return;
  if (drafts.size() > request.drafts.size() ||
      !std::equal(drafts.begin(), drafts.end(), request.drafts.begin())) {
    return fail("request {} has drafts that nobody made", request.id.value);
  }
  const auto vocab = static_cast<TokenId>(config_.scheduler.vocab_size);
  if (std::any_of(drafts.begin(), drafts.end(), [&](TokenId t) { return t < 0 || t >= vocab; }))
    return fail("request {} would compute a draft outside the vocabulary", request.id.value);
  if (request.tokens.size() + row.samples > request.limit_tokens)
    return fail("request {}: {} tokens and {} samples are beyond its limit of {}", request.id.value,
                request.tokens.size(), row.samples, request.limit_tokens);
}

// Nobody writes a block that anyone else has in a row of this plan or of one in flight.
void Simulator::check_writes(const StepPlan& plan) {
  std::fill(named_.begin(), named_.end(), 0U);
  const auto name = [&](const PlanRow& row) {
    for (const BlockId id : row.blocks) ++named_[id.value];
  };
  for (const PlanRow& row : plan.rows) name(row);
  for (uint64_t i = finished_; i < planned_; ++i) {
    for (const PlanRow& row : plans_[i % plans_.size()].rows) {
      const bool here = std::any_of(plan.rows.begin(), plan.rows.end(),
                                    [&](const PlanRow& r) { return r.request == row.request; });
      if (!here) name(row);
    }
  }
  for (const PlanRow& row : plan.rows) {
    if (!row.writes_kv) continue;
    for (uint32_t b = row.start / kBlockTokens; b < blocks_for(row.start + row.count); ++b) {
      const uint32_t names = named_[row.blocks[b].value];
      if (names > 1)
        return fail("request {} writes block {}, which {} requests hold", row.request.value,
                    row.blocks[b].value, names);
    }
  }
}

// The bound on waiting: whoever starts has the best key of all who wait. So nothing that arrives
// more than (class gap / rate) later goes ahead.
void Simulator::check_overtaking(const SimRequest& admitted) {
  for (const auto& other : requests_) {
    const SimRequest& w = *other;
    if (w.ended || w.in_batch || &w == &admitted) continue;
    if (std::pair(w.key, w.id) > std::pair(admitted.key, admitted.id)) {
      if (w.arrival >= admitted.arrival) continue;
      // Overtaken, as a better class may: by how much of what the bound allows?
      const TimeUs bound =
          (static_cast<TimeUs>(w.priority) - static_cast<TimeUs>(admitted.priority)) *
          config_.scheduler.us_per_class;
      const TimeUs permille = (admitted.arrival - w.arrival) * 1000 / bound;
      report_.worst_overtake_permille =
          std::max(report_.worst_overtake_permille, static_cast<uint64_t>(permille));
      continue;
    }
    return fail("request {} (class {}, arrived {}) overtook {} (class {}, arrived {})",
                admitted.id.value, static_cast<int>(admitted.priority), admitted.arrival,
                w.id.value, static_cast<int>(w.priority), w.arrival);
  }
}

// Whoever is first in the queue starts at the latest when all that runs, or comes ahead by a better
// key, has ended: no one else is let in, and every step computes at least one token.
void Simulator::check_starvation() {
  const SimRequest* top = nullptr;
  uint64_t to_come = 64;
  for (const auto& request : requests_) {
    const SimRequest& r = *request;
    if (r.ended) continue;
    if (r.in_batch)
      to_come += r.limit_tokens - (r.planned - r.drafts_in_flight) + 1;
    else if (top == nullptr || std::pair(r.key, r.id) < std::pair(top->key, top->id))
      top = &r;
  }
  if (top == nullptr || top->id != top_) {
    top_ = top == nullptr ? RequestId{} : top->id;
    top_turns_ = 0;
    top_bound_ = to_come;
  } else if (++top_turns_ > top_bound_) {
    fail("request {} has been first in the queue for {} steps", top_.value, top_turns_);
  }
}

void Simulator::check_deadlines() {
  if (!config_.faults.has(Fault::kDeadlines)) return;
  for (const auto& request : requests_) {
    if (!request->ended && request->deadline <= seen_now_) {
      return fail("request {} lives {} us after its deadline", request->id.value,
                  seen_now_ - request->deadline);
    }
  }
}

void Simulator::log_plan(const StepPlan& plan) {
  std::string& log = report_.plan_log;
  log += fmt::format("{}:", plan.step);
  for (const PlanRow& row : plan.rows) {
    log += fmt::format(" {}@{}+{}s{}{}{}[", row.request.value, row.start, row.count, row.samples,
                       row.writes_kv ? "" : "r", row.token_from_previous ? "p" : "");
    for (const BlockId id : row.blocks) log += fmt::format("{} ", id.value);
    log += ']';
  }
  log += '\n';
}

}  // namespace skein::sim
