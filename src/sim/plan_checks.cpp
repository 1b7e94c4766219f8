// Rules that every plan must keep, seen from outside the scheduler.
#include <algorithm>
#include <utility>

#include "sim/simulator.h"

namespace skein::sim {

void Simulator::check_plan(const StepPlan& plan) {
  if (config_.keep_plan_log) log_plan(plan);
  if (plan.segments.size() > config_.scheduler.max_batch) {
    return fail("{} segments in a batch of {}", plan.segments.size(), config_.scheduler.max_batch);
  }
  uint32_t tokens = 0;
  size_t drafts = 0;
  bool has_prompt = false;
  for (const Segment& segment : plan.segments) {
    tokens += segment.count;
    drafts += segment.drafts.size();
    has_prompt = has_prompt || is_prompt(segment);
    check_segment(segment);
    if (failed()) return;
  }
  if (drafts > 0 && has_prompt) return fail("{} drafts beside a prompt", drafts);
  if (drafts > config_.scheduler.step_drafts)
    return fail("{} drafts planned, at most {}", drafts, config_.scheduler.step_drafts);
  // Decode rows run beside a full step; of texts that come whole none is.
  const uint64_t most = uint64_t{config_.scheduler.step_tokens} +
                        (config_.scheduler.whole ? 0 : plan.segments.size());
  if (tokens != plan.tokens || tokens > most)
    return fail("{} tokens planned ({} said), at most {}", tokens, plan.tokens, most);
  check_writes(plan);
  check_pace(plan);
}

// Streams of strictly worse class and key do not make a prompt slower: it is cut where the step has
// no tokens left, and nowhere else. Of HIGH, for others may be cut for a better class that asks.
void Simulator::check_pace(const StepPlan& plan) {
  const SchedulerConfig& s = config_.scheduler;
  // Who was preempted may have been a stream when the prompt was cut.
  if (s.inter_token_target_us > 0 || s.whole || !plan.preempted.empty()) return;
  for (const Segment& segment : plan.segments) {
    const SimRequest& prompt = *find(segment.request);
    if (!is_prompt(segment) || prompt.priority != Priority::HIGH) continue;
    const auto streams = [&](const auto& r) {
      return !r->ended && r->in_batch && r.get() != &prompt &&
             (r->generated() > 0 || r->pending_samples > 0);
    };
    const auto is_spared = [&](const auto& r) {
      const bool worse = r->priority > prompt.priority &&
                         std::pair(r->key, r->id) > std::pair(prompt.key, prompt.id);
      return streams(r) && !worse;
    };
    const auto count =
        static_cast<uint64_t>(std::count_if(requests_.begin(), requests_.end(), streams));
    if (count == 0 || std::any_of(requests_.begin(), requests_.end(), is_spared)) continue;
    saw(Path::k_streams_not_spared);
    // It ends at a block's border, and a stream whose row was counted may have been held back then.
    const bool is_cut = segment.start + segment.count < prompt.tokens.size();
    if (is_cut && plan.tokens + count + kBlockTokens <= s.step_tokens) {
      return fail("request {} gets {} tokens, in a step of {} of {}, for streams of a worse class",
                  prompt.id.value, segment.count, plan.tokens, s.step_tokens);
    }
  }
}

// Who left the queue and who went back to it, checked against what they were before.
void Simulator::check_moves(const StepPlan& plan) {
  if (config_.scheduler.whole && !plan.preempted.empty())
    return fail("request {}, which holds nothing, was preempted", plan.preempted[0].value);
  for (const RequestId id : plan.preempted) {
    SimRequest* r = find(id);
    if (r == nullptr || !r->in_batch)
      return fail("request {} was preempted but did not run", id.value);
    if (r->segments_in_flight > 0)
      return fail("request {} was preempted with a segment in flight", id.value);
    r->planned = r->table_blocks = r->planned_most = 0;
    r->drafts.clear();
    if (std::exchange(r->put_off_until, 0) > 0) saw(Path::k_put_off_preempted);
    r->again_to = 0;
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

// It computes what is no decode row for certain.
bool Simulator::is_prompt(const Segment& segment) {
  const SimRequest* request = find(segment.request);
  if (request == nullptr || segment.token_from_previous) return false;
  return segment.tokens.size() > 1 || request->generated() == 0;
}

void Simulator::check_segment(const Segment& segment) {
  SimRequest* request = find(segment.request);
  if (request == nullptr)
    return fail("request {} has a segment but is not live", segment.request.value);
  SimRequest& r = *request;
  if (!r.in_batch) return fail("request {} has a segment but waits", r.id.value);
  if (r.put_off_until > 0) return fail("request {} has a segment but was put off", r.id.value);
  const uint32_t end = segment.start + segment.count;
  const uint32_t sure = end - static_cast<uint32_t>(segment.drafts.size());
  const auto known = static_cast<uint32_t>(r.tokens.size());
  const uint32_t total = known + r.pending_samples;
  if (sure <= segment.start || sure > total)
    return fail("request {}: segment {}+{} of {} tokens", r.id.value, segment.start, segment.count,
                total);
  if (segment.start < r.planned)
    return fail("request {} goes back from {} to {}", r.id.value, r.planned, segment.start);
  const bool every_row = r.wants_every_row || config_.scheduler.whole;
  if (segment.wants_every_row != every_row || (every_row && segment.start != r.planned)) {
    return fail("request {} wants every row and gets none from {} to {}", r.id.value, r.planned,
                segment.start);
  }
  const size_t samples = sure == total && !r.ends_when_computed ? 1 + segment.drafts.size() : 0;
  if (segment.samples != samples || segment.ends != (sure == total && r.ends_when_computed)) {
    return fail("request {}: segment ends at {} of {}, samples {}, ends {}", r.id.value, sure,
                total, segment.samples, segment.ends);
  }
  if (segment.token_from_previous != (segment.start >= known))
    return fail("request {}: token {} from the wrong place", r.id.value, segment.start);
  if (!segment.token_from_previous &&
      !std::equal(segment.tokens.begin(), segment.tokens.end(), r.tokens.begin() + segment.start,
                  r.tokens.begin() + sure)) {
    return fail("request {} would compute the wrong tokens at {}", r.id.value, segment.start);
  }
  check_drafts(segment, r);
  if (config_.scheduler.whole) {
    if (segment.start != 0 || segment.count != r.prompt_tokens || !segment.blocks.empty()) {
      return fail("request {}: {}+{} of {} tokens in {} blocks is not the whole of it", r.id.value,
                  segment.start, segment.count, r.prompt_tokens, segment.blocks.size());
    }
    saw(Path::k_computed_whole);
  } else if (segment.blocks.size() < blocks_for(end))
    return fail("request {}: {} blocks for {} tokens", r.id.value, segment.blocks.size(), end);
  // What drafts that did not come true have taken stays, and is what comes next for it.
  r.planned_most = std::max({r.planned_most, end, known});
  if (segment.blocks.size() > blocks_for(r.planned_most)) {
    return fail("request {} holds {} blocks and never had more than {} tokens", r.id.value,
                segment.blocks.size(), r.planned_most);
  }
  // What came into the table and is not below the segment was not found in the cache: it is fresh.
  if (segment.writes_kv && !config_.scheduler.whole) {
    oracle_.poison_blocks(
        segment, std::max(r.table_blocks, static_cast<uint32_t>(blocks_for(segment.start))));
  }
  r.table_blocks = static_cast<uint32_t>(segment.blocks.size());
  r.planned = end;
  r.pending_samples += segment.samples > 0 ? 1 : 0;
  r.drafts_in_flight += static_cast<uint32_t>(segment.drafts.size());
  ++r.segments_in_flight;
}

// Drafts are what the last result guessed, and never more than the answer may have; and who depends
// on the last token is not planned ahead of it.
void Simulator::check_drafts(const Segment& segment, const SimRequest& request) {
  if (segment.samples > 0 && request.pending_samples > 0) {
    if (request.constrained)
      return fail("request {} is planned ahead of its constraint", request.id.value);
    if (request.drafts_in_flight > 0)
      return fail("request {} is planned ahead of its drafts", request.id.value);
  }
  if (request.constrained && config_.scheduler.depth == 2) saw(Path::k_not_planned_ahead);
  if (request.drafts.size() > segment.drafts.size())
    saw(request.pending_samples > 0 ? Path::k_drafts_too_late : Path::k_drafts_cut);
  const std::span<const TokenId> drafts = segment.drafts;
  if (drafts.empty()) return;
  if (drafts.size() > request.drafts.size() ||
      !std::equal(drafts.begin(), drafts.end(), request.drafts.begin())) {
    return fail("request {} has drafts that nobody made", request.id.value);
  }
  const auto vocab = static_cast<TokenId>(config_.scheduler.vocab_size);
  if (std::any_of(drafts.begin(), drafts.end(), [&](TokenId t) { return t < 0 || t >= vocab; }))
    return fail("request {} would compute a draft outside the vocabulary", request.id.value);
  if (request.tokens.size() + segment.samples > request.limit_tokens)
    return fail("request {}: {} tokens and {} samples are beyond its limit of {}", request.id.value,
                request.tokens.size(), segment.samples, request.limit_tokens);
}

// Nobody writes a block that anyone else has in a segment of this plan or of one in flight.
void Simulator::check_writes(const StepPlan& plan) {
  std::fill(named_.begin(), named_.end(), 0U);
  const auto name = [&](const Segment& segment) {
    for (const BlockId id : segment.blocks) ++named_[id.value];
  };
  for (const Segment& segment : plan.segments) name(segment);
  for (uint64_t i = finished_; i < planned_; ++i) {
    for (const Segment& segment : plans_[i % plans_.size()].segments) {
      const bool here = std::any_of(plan.segments.begin(), plan.segments.end(),
                                    [&](const Segment& r) { return r.request == segment.request; });
      if (!here) name(segment);
    }
  }
  if (config_.scheduler.whole) return;  // there are no blocks
  for (const Segment& segment : plan.segments) {
    if (!segment.writes_kv) continue;
    for (uint32_t b = segment.start / kBlockTokens; b < blocks_for(segment.start + segment.count);
         ++b) {
      const uint32_t names = named_[segment.blocks[b].value];
      if (names > 1)
        return fail("request {} writes block {}, which {} requests hold", segment.request.value,
                    segment.blocks[b].value, names);
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
      to_come += r.limit_tokens - (r.planned - r.drafts_in_flight) + (r.put_off_until > 0 ? 6 : 1);
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
  for (const Segment& segment : plan.segments) {
    log += fmt::format(" {}@{}+{}s{}{}{}[", segment.request.value, segment.start, segment.count,
                       segment.samples, segment.writes_kv ? "" : "r",
                       segment.token_from_previous ? "p" : "");
    for (const BlockId id : segment.blocks) log += fmt::format("{} ", id.value);
    log += ']';
  }
  log += '\n';
}

}  // namespace skein::sim
