#!/usr/bin/env python3
"""The planted defects: each is an edit of one source file.

The product's code stays clean; a mutant is built from a mutated copy of its file and linked with the
rest, and its test passes when the simulation catches it, or the unit test that the entry names. Defects 1-16 are those that an earlier
batching server of this shape really had (8, 9 and 13 live in other layers).

  mutants.py --list SUITE       name and file of every mutant of a suite: sim, or the name of a unit test
  mutants.py --make NAME OUT    writes the mutated file
"""
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent.parent / "src"

# name, file, text that stands there exactly once, what to plant instead, the suite unless it is sim
MUTANTS = [
    ("01_refused_growth_leaks_blocks", "kv/kv_allocator.cpp",
     "if (wanted - table.size() > manager_.available()) return false;",
     "if (wanted - table.size() > manager_.available()) { while (manager_.available() > 0) manager_.take(); return false; }"),
    ("02_cancel_in_queue_is_ignored", "sched/scheduler.cpp",
     "  const bool was_running = request.runs();\n  end(request, reason);",
     "  const bool was_running = request.runs();\n  if (!was_running) return true;\n  end(request, reason);"),
    ("03_eviction_leaves_prefix_entry", "kv/kv_allocator.cpp", "      cache_.erase(id);\n", ""),
    ("04_requeue_resets_aging", "sched/scheduler.cpp", "  std::erase(by_key_, &request);\n",
     "  std::erase(by_key_, &request);\n  request.arrival = now_;\n  request.key = queue_.key_for(now_, request.priority);\n"),
    ("05_larger_than_pool_is_queued", "sched/inspect.cpp",
     "if (spec.prompt.size() + answer > pool) return never_fits(\"KV pool\", pool);", "(void)pool;"),
    ("06_no_block_for_generated_tokens", "sched/scheduler.cpp",
     "} else if (!request.at_limit() && grow_or_preempt(request, uint64_t{request.planned} + 1)) {",
     "} else if (!request.at_limit()) {"),
    ("07_cache_keeps_a_reference", "kv/kv_allocator.cpp", "      manager_.mark_cached(block);\n",
     "      manager_.mark_cached(block);\n      manager_.acquire(block);\n"),
    ("eviction_is_not_told", "kv/kv_allocator.cpp", "      note(KvEvent::Kind::kRemoved, id);\n", ""),
    ("event_lost_now_and_then", "kv/kv_allocator.cpp", "  if (most_events_ == 0) return;\n",
     "  if (most_events_ == 0 || cache_.contents(block).hash % 64 == 0) return;\n"),
    ("event_with_the_hash_of_its_parent", "kv/kv_allocator.cpp", "events_.push_back({kind, block, cache_.contents(block).hash});",
     "events_.push_back({kind, block, cache_.contents(block).parent_hash});"),
    ("below_a_parent_of_others", "kv/kv_allocator.cpp", 
     "      manager_.acquire(there.block);\n      manager_.release(block);\n      table.blocks_[index] = there.block;\n", ""),
    ("10_hits_not_compared_with_tokens", "kv/prefix_cache.cpp",
     "if (slot.place == place && std::equal(tokens.begin(), tokens.end(), slot.tokens.begin())) {",
     "(void)tokens;\n    if (slot.place == place) {"),
    ("11_wall_clock_drives_aging", "sched/scheduler.cpp",
     "request->key = queue_.key_for(now_, spec.priority);",
     "request->key = queue_.key_for(static_cast<TimeUs>(time(nullptr)), spec.priority);"),
    ("12_queue_is_unbounded", "sched/scheduler.cpp", "if (queue_.size() >= config_.max_queue) {",
     "if (queue_.size() >= 1'000'000) {"),
    ("14_free_list_is_searched", "kv/paged_block_manager.cpp", "  if (--block.refs > 0) return;\n",
     "  for (BlockId b = head_; b != kNoBlock; b = blocks_[b.value].next) SKEIN_CHECK(b != id, \"double free\");\n"
     "  if (--block.refs > 0) return;\n"),
    ("15_prefix_cache_never_consulted", "kv/kv_allocator.cpp", "  if (found) entry = *found;\n  return found.has_value();",
     "  if (found) entry = *found;\n  return false;"),
    ("16_every_step_reruns_the_prompt", "sched/scheduler.cpp", "    segment.start = start;\n    segment.count = count;\n",
     "    segment.start = 0;\n    segment.count = start + count;\n"),
    ("encoders_text_in_parts", "sched/scheduler.cpp", "if (config_.whole && budget.fit(0, head.prompt_tokens) < head.prompt_tokens) {",
     "if (config_.whole && budget.fit(0, head.prompt_tokens) < 1) {"),
    ("encoders_text_takes_blocks", "sched/prefills.cpp", "if (!config_.whole && !grow_or_preempt(request, end)) return;",
     "if (!grow_or_preempt(request, end)) return;"),
    ("encoders_text_longer_than_a_step", "sched/inspect.cpp", "if (spec.prompt.size() <= config.step_tokens) return {};",
     "return {};"),
    ("publish_before_compute", "sched/scheduler.cpp", "    ++request->segments_in_flight;\n",
     "    ++request->segments_in_flight;\n    if (!segment.token_from_previous) kv_.publish(request->table, request->tokens, request->planned);\n"),
    ("double_free", "kv/kv_allocator.cpp", "    manager_.release(table.blocks_.back());\n",
     "    manager_.release(table.blocks_.back());\n    if (table.size() == 2) manager_.release(table.blocks_.back());\n"),
    ("reference_leaked_on_cancel", "sched/scheduler.cpp", "  kv_.release(request.table);\n  request = BatchRequest{};",
     "  if (request.status != RequestStatus::CANCELLED) kv_.release(request.table);\n  request = BatchRequest{};"),
    ("write_to_shared_block", "sched/scheduler.cpp", "segment.writes_kv = start >= request->table.linked_tokens();",
     "segment.writes_kv = true;"),
    ("best_key_is_preempted", "sched/scheduler.cpp", "BatchRequest& victim = *by_key_.back();",
     "BatchRequest& victim = *by_key_.front();"),
    ("class_preemption_ignores_aging", "sched/scheduler.cpp", "it != by_key_.rend() && goes_before(head, **it) && !fits",
     "it != by_key_.rend() && !fits"),
    ("deadline_ignored", "sched/scheduler.cpp", "if (request->deadline != kNever) deadlines_.add(*request);", ""),
    ("token_after_the_end", "sched/scheduler.cpp", "  if (request.ended()) {\n    counters_.wasted_tokens",
     "  if (request.ended() && !segment.samples) {\n    counters_.wasted_tokens"),
    ("blocks_freed_in_flight", "sched/scheduler.cpp", "ending_.push_back(&request);",
     "ending_.push_back(&request), kv_.release(request.table);"),
    ("no_aging", "sched/priority_queue_with_aging.cpp", "return arrival + static_cast<TimeUs>(priority) * us_per_class_;",
     "return arrival + static_cast<TimeUs>(priority) * (TimeUs{1} << 50);"),
    ("tenant_salt_dropped", "sched/scheduler.cpp", "request->table.reset(spec.salt, ", "request->table.reset({}, "),
    ("block_under_way_for_ever", "sched/scheduler.cpp", "return u.step <= committed_step_;", "return u.step == 0;"),
    ("published_one_token_early", "kv/kv_allocator.cpp", "* kBlockTokens <= computed; ++table.linked_",
     "* kBlockTokens <= computed + 1; ++table.linked_"),
    ("tenant_share_ignored", "sched/queue_door.cpp", "  if (contended && !arrival.follows)", "  if (contended && config_.max_queue == 0)"),
    ("tenant_share_never_released", "sched/queue_door.cpp", "  if (--it->second.places > 0) return;\n", "  if (waiting_ > 0) return;\n"),
    ("ends_counted_twice", "sched/queue_door.cpp", "  ++ends_[static_cast<size_t>(bucket_) % kBuckets];\n",
     "  ends_[static_cast<size_t>(bucket_) % kBuckets] += 2;\n"),
    ("old_ends_count_for_ever", "sched/queue_door.cpp", "    ends_[static_cast<size_t>(b) % kBuckets] = 0;\n", ""),
    ("who_asked_once_asks_for_ever", "sched/queue_door.cpp", "  return now_ - asked <= config_.us_per_class;\n",
     "  return asked > kLongAgo;\n"),
    ("one_tenant_takes_all_places", "sched/queue_door.cpp",
     "uint32_t may_hold = places - places_for_others(config_.max_queue);", "uint32_t may_hold = places;"),
    ("hit_without_reference", "kv/kv_allocator.cpp", "    manager_.acquire(entry.block);\n",
     "    if (manager_.refs(entry.block) == 0) manager_.acquire(entry.block);\n"),
    ("step_finished_twice", "sched/scheduler.cpp", "  in_flight_first_ = (in_flight_first_ + 1) % config_.depth;\n", ""),
    ("output_of_the_wrong_step", "sched/scheduler.cpp",
     "  InFlight& plan = in_flight_[in_flight_first_];\n  SKEIN_CHECK(plan.step == result.step,",
     "  InFlight& plan = in_flight_[(in_flight_first_ + in_flight_count_ - 1) % config_.depth];\n  SKEIN_CHECK(plan.step > 0,"),
    ("draft_delivered", "sched/scheduler.cpp", "  if (segment.samples > 0) accept_tokens(request, result, effects);",
     "  if (segment.samples > 0) accept_tokens(request, segment.drafts.empty() ? result : SegmentResult{result.outcome, request.drafts, {}}, effects);"),
    ("wrong_draft_counts_as_computed", "sched/scheduler.cpp",
     "request.computed = segment.known_end() + right;", "request.computed = segment.start + segment.count;\n  (void)right;"),
    ("wrong_draft_stays_planned", "sched/scheduler.cpp", "    request.planned = request.computed;\n", ""),
    ("draft_published", "sched/scheduler.cpp", "  request.tokens.insert(request.tokens.end(), result.tokens.begin(), result.tokens.end());\n",
     "  const size_t known = request.tokens.size();\n"
     "  request.tokens.insert(request.tokens.end(), segment.drafts.begin(), segment.drafts.end());\n"
     "  if (!segment.drafts.empty()) kv_.publish(request.table, request.tokens, segment.start + segment.count);\n"
     "  request.tokens.resize(known);\n"
     "  request.tokens.insert(request.tokens.end(), result.tokens.begin(), result.tokens.end());\n"),
    ("block_leaked_on_rejection", "sched/scheduler.cpp", "    request.planned = request.computed;\n",
     "    request.planned = request.computed;\n"
     "    if (right < segment.drafts.size()) request.table.reset({}, request.limit_tokens, false);\n"),
    ("drafts_take_blocks_ahead", "sched/drafts.cpp", "kv_.grow(request.table, uint64_t{position} + 1)",
     "kv_.grow(request.table, uint64_t{position} + 1 + kBlockTokens)"),
    ("drafts_beside_a_prompt", "sched/drafts.cpp", "  if (std::any_of(by_key_.begin(), by_key_.end(), is_prompt)) return;\n",
     "  (void)is_prompt;\n"),
    ("draft_outside_the_vocabulary", "sched/drafts.cpp", "    if (!in_vocabulary(result.drafts[i])) break;\n", ""),
    ("drafts_beyond_the_limit", "sched/drafts.cpp", "r.total() + r.step_drafts + 1 < r.limit_tokens", "r.total() + r.step_drafts < r.limit_tokens"),
    ("drafts_beyond_the_blocks", "sched/drafts.cpp", "if (position < request.table.size() * kBlockTokens) return true;",
     "if (position < UINT32_MAX) return true;"),
    ("drafts_beyond_the_budget", "sched/drafts.cpp", "    if (!budget.fits(position)) return;\n",
     ""),
    ("planned_ahead_of_drafts", "sched/scheduler.cpp", "(r.plans_ahead && r.drafts_in_flight == 0)", "r.plans_ahead"),
    ("constraint_ignored", "sched/scheduler.cpp", "(r.plans_ahead && r.drafts_in_flight == 0)", "r.drafts_in_flight == 0"),
    ("last_token_goes_on", "sched/scheduler.cpp", "const bool complete = result.outcome != SegmentOutcome::kOk;",
     "const bool complete = result.outcome == SegmentOutcome::kStop;"),
    ("computed_request_never_ends", "sched/scheduler.cpp", "  if (segment.ends) {\n", "  if (segment.ends && segment.samples > 0) {\n"),
    ("rows_taken_from_the_cache", "kv/kv_allocator.cpp", "  if (!shares(table) || (uint64_t{index}", "  if (!caching_ || (uint64_t{index}"),
    ("claim_made_twice", "server/store/batch_lines.cpp", "AND status_code IS NULL AND epoch IS NULL AND deaths = 0",
     "AND status_code IS NULL AND deaths = 0", "batch_store_test"),
    ("suspect_claimed_twice", "server/store/batch_lines.cpp", "AND line = $3 AND status_code IS NULL AND epoch IS NULL\n",
     "AND line = $3 AND status_code IS NULL\n", "batch_store_test"),
    ("old_epoch_finishes_a_line", "server/store/batch_lines.cpp", "AND line = $6 AND epoch = $7 AND", "AND line = $6 AND $7 > 0 AND",
     "batch_store_test"),
    ("old_epoch_goes_on", "server/store/batch_lines.cpp", "return lives ? Status{}", "return lives || epoch > 0 ? Status{}", "batch_store_test"),
    ("old_epoch_begins_a_batch", "server/store/batch_store.cpp",
     "const Status taken = take_batch(db, epoch, seq, name_of(BatchStatus::kValidating));", "const Status taken = Status(); (void)epoch;",
     "batch_store_test"),
    ("line_of_another_model_is_claimed", "server/store/batch_lines.cpp", "AND (model IS NULL OR model {1})", "AND $4 IS NOT NULL",
     "batch_store_test"),
    ("old_epoch_gives_back", "server/store/batch_lines.cpp", "$2 AND epoch = $3\"", "$2 AND $3 > 0\"", "batch_store_test"),
    ("another_tenants_text_drafted_from", "engine/speculation/draft_memory.cpp",
     "return known.tenant == tenant && known.salt == salt;", "return known.answers != nullptr || known.salt == salt || known.tenant == tenant;",
     "drafter_test"),
    ("answers_matched_across_their_ends", "engine/speculation/draft_memory.cpp", "  newer_->append(kNoToken);\n", "", "drafter_test"),
    ("streams_of_a_worse_class_are_spared", "sched/prefills.cpp", "budget.fit(start, known - start, spares(request))",
     "budget.fit(start, known - start)"),
    ("put_off_row_is_taken_as_computed", "sched/put_off.cpp", "request.planned = segment.known_end() - 1;",
     "request.planned = segment.known_end();"),
    ("put_off_goes_on", "sched/put_off.cpp", "  request.put_off = true;\n", ""),
    ("put_off_stays_when_preempted", "sched/scheduler.cpp", "  request.put_off = false;\n", ""),
    ("half_a_marker_is_shown", "dialog/answer_parser.cpp", "  if (found.fit == Fit::kPart && !last) return false;\n", "",
     "answer_parser_test"),
    ("quoted_tag_ends_a_value", "dialog/tagged_body.cpp", "if (key == Fit::kFull || close == Fit::kFull) return fits;",
     "return fits;", "answer_parser_test"),
]


def make(name, out):
    _, file, find, replace = next(m for m in MUTANTS if m[0] == name)[:4]
    text = (SRC / file).read_text()
    if text.count(find) != 1:
        sys.exit(f"mutants: {name}: its text stands {text.count(find)} times in src/{file}, not once:\n{find}")
    Path(out).write_text(text.replace(find, replace))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--list":
        print(";".join(f"{m[0]}|{m[1]}" for m in MUTANTS if (m[4:] or ("sim",))[0] == sys.argv[2]))
    elif len(sys.argv) == 4 and sys.argv[1] == "--make":
        make(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
