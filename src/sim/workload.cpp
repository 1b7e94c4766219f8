#include "sim/workload.h"

#include <algorithm>

namespace skein::sim {
namespace {

// Distinct streams of randomness for one request.
constexpr uint64_t kTokenStream = 1;
constexpr uint64_t kOutcomeStream = 2;
constexpr uint64_t kTurnStream = 3;
constexpr uint64_t kDraftStream = 4;
constexpr uint64_t kOddsStream = 5;
constexpr uint64_t kKindStream = 5;

uint32_t pick(Rng& rng, std::initializer_list<uint32_t> values) {
  return values.begin()[rng.below(values.size())];
}

TokenId oracle_token(const SimConfig& config, uint64_t request_seed, uint32_t index) {
  return static_cast<TokenId>(random_at(request_seed, kTokenStream, index) %
                              config.scheduler.vocab_size);
}

}  // namespace

SimConfig random_config(uint64_t seed, uint32_t steps) {
  Rng rng(seed ^ 0xC0FF1EU);
  SimConfig c;
  c.seed = seed;
  c.steps = steps;
  for (uint32_t f = 0; f < static_cast<uint32_t>(Fault::kCount); ++f) {
    if (rng.chance(1, 3)) c.faults.set(static_cast<Fault>(f));
  }
  SchedulerConfig& s = c.scheduler;
  s.pool_blocks = static_cast<uint32_t>(rng.chance(1, 4) ? rng.between(1, 8) : rng.between(8, 64));
  s.max_batch = pick(rng, {1, 2, 4, 8, 16});
  s.max_queue = pick(rng, {4, 16, 64});
  s.step_tokens = pick(rng, {1, 7, 16, 33, 64, 256});
  s.max_context = static_cast<uint32_t>(rng.chance(1, 4) ? rng.between(8, 300) : 4096);
  s.vocab_size = pick(rng, {2, 50, 50'000});
  s.depth = pick(rng, {1, 1, 2});
  s.us_per_class = static_cast<TimeUs>(pick(rng, {1'000, 20'000, 500'000, 10'000'000}));
  s.inter_token_target_us = static_cast<TimeUs>(pick(rng, {0, 0, 2'000}));
  s.prefix_cache = !rng.chance(1, 8);
  s.hash_key = {rng.next(), rng.next()};
  const uint32_t room = std::min(s.pool_blocks * kBlockTokens, s.max_context);
  c.target_live = pick(rng, {1, 4, 12, 24});
  c.tenants = pick(rng, {1, 1, 3});
  c.system_prompt_tokens = std::min(room / 3, pick(rng, {0, 32, 64, 90, 200}));
  c.max_prompt_tokens = std::max(1U, std::min(room / 2, pick(rng, {8, 40, 120, 400})));
  c.max_answer_tokens = pick(rng, {1, 20, 60, 200});
  c.stop_permille = pick(rng, {0, 5, 50});
  c.follow_up_percent = pick(rng, {0, 30, 70});
  s.max_slowdown_percent = pick(rng, {0, 110, 250});
  c.door = rng.chance(1, 2);
  c.background = rng.chance(1, 2) && c.tenants > 1;
  if (rng.chance(1, 4)) s.sure_batch = 1 + static_cast<uint32_t>(rng.below(s.max_batch));
  s.step_drafts = pick(rng, {0, 1, 3, 40});
  c.draft_percent = pick(rng, {0, 50, 95});
  c.unsampled_percent = pick(rng, {0, 10, 50});
  c.constrained_percent = pick(rng, {0, 30, 100});
  // An encoder's: what does not fit a step is refused, and what is left should be worth a run.
  s.whole = rng.chance(1, 8);
  if (s.whole) {
    c.unsampled_percent = 100;
    s.step_tokens = std::max(s.step_tokens, c.system_prompt_tokens + c.max_prompt_tokens / 2 + 1);
  }
  c.row_us =
      pick(rng, {15, 15, 15, 1'500});  // on the slow one the time that prompts take is limited
  return c;
}

OracleSample oracle_sample(const SimConfig& config, uint64_t request_seed, uint32_t index) {
  const uint64_t dice = random_at(request_seed, kOutcomeStream, index);
  if (dice % 1000 < config.stop_permille) {
    if ((dice >> 32 & 1) != 0) return {SegmentOutcome::kStop, kNoToken};
    return {SegmentOutcome::kLast, oracle_token(config, request_seed, index)};
  }
  const bool faulty =
      config.faults.has(Fault::kSegmentFault) || config.faults.has(Fault::kStepThrows);
  if (faulty && (dice >> 16) % 500 == 0) return {SegmentOutcome::kFault, kNoToken};
  return {SegmentOutcome::kOk, oracle_token(config, request_seed, index)};
}

std::vector<TokenId> oracle_drafts(const SimConfig& config, uint64_t request_seed, uint32_t index) {
  Rng rng(random_at(request_seed, kDraftStream, index));
  std::vector<TokenId> drafts(rng.below(rng.chance(1, 8) ? 200 : 8));
  for (TokenId& draft : drafts) {
    draft = oracle_token(config, request_seed, index++);
    if (rng.below(100) < config.draft_percent) continue;
    const auto vocab = static_cast<TokenId>(config.scheduler.vocab_size);
    draft = rng.chance(1, 8) ? (rng.chance(1, 2) ? vocab : kNoToken)
                             : static_cast<TokenId>(rng.below(config.scheduler.vocab_size));
  }
  return drafts;
}

std::vector<uint16_t> oracle_odds(uint64_t request_seed, uint32_t index, size_t drafts) {
  Rng rng(random_at(request_seed, kOddsStream, index));
  if (request_seed % 2 == 0) return {};
  std::vector<uint16_t> odds(rng.chance(1, 8) ? rng.below(drafts + 3) : drafts);
  for (uint16_t& likely : odds) likely = static_cast<uint16_t>(rng.below(1200));
  return odds;
}

Hash128 tenant_salt(uint32_t tenant) {
  return {mix64(tenant), mix64(tenant + 1000ULL)};
}

void SimRequest::extend_digests() {
  while (digests.size() < tokens.size()) {
    const uint64_t before = digests.empty() ? mix64(tenant) : digests.back();
    digests.push_back(next_digest(before, tokens[digests.size()]));
  }
}

uint64_t next_digest(uint64_t before, TokenId token) {
  return random_at(before, static_cast<uint64_t>(token));
}

std::vector<TokenId> Workload::fresh_tokens(uint64_t seed, uint32_t count) const {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>(random_at(seed, i) % config_.scheduler.vocab_size);
  }
  return tokens;
}

SimRequest Workload::next() {
  SimRequest r;
  r.id = RequestId{next_id_++};
  r.seed = random_at(config_.seed, 0x5eed, r.id.value);
  r.priority = static_cast<Priority>(rng_.below(kPriorities));
  r.tenant = static_cast<uint32_t>(rng_.below(config_.tenants));
  if (!turns_.empty() && rng_.chance(1, 2)) {
    const size_t at = rng_.below(turns_.size());
    r.tenant = turns_[at].tenant;
    r.tokens = std::move(turns_[at].tokens);
    turns_.erase(turns_.begin() + static_cast<ptrdiff_t>(at));
  } else {
    // Two system prompts, the same for every tenant: what must not be shared across salts.
    r.tokens = fresh_tokens(config_.seed + rng_.below(2), config_.system_prompt_tokens);
    // Now and then the very prompt of someone else, to find it whole in the cache.
    const uint64_t text = rng_.chance(1, 3) ? rng_.below(4) : r.id.value;
    Rng shape(random_at(config_.seed, 0x7e87, text));
    auto length = static_cast<uint32_t>(shape.between(1, config_.max_prompt_tokens));
    if (shape.chance(1, 3)) length = std::max(kBlockTokens, length / kBlockTokens * kBlockTokens);
    const auto own = fresh_tokens(random_at(config_.seed, 0x7e88, text), length);
    r.tokens.insert(r.tokens.end(), own.begin(), own.end());
  }
  r.prompt_tokens = static_cast<uint32_t>(r.tokens.size());
  r.ends_when_computed = random_at(r.seed, kKindStream, 0) % 100 < config_.unsampled_percent;
  r.wants_every_row = r.ends_when_computed && random_at(r.seed, kKindStream, 2) % 2 == 0;
  r.constrained = random_at(r.seed, kKindStream, 1) % 100 < config_.constrained_percent;
  r.limit_tokens =
      rng_.chance(1, 10)
          ? 0
          : r.prompt_tokens + static_cast<uint32_t>(rng_.between(1, config_.max_answer_tokens));
  return r;
}

void Workload::completed(const SimRequest& request) {
  // Not from rng_: which requests come next must not depend on when others are done.
  const bool goes_on = random_at(request.seed, kTurnStream) % 100 < config_.follow_up_percent;
  if (!goes_on || turns_.size() >= 16) return;
  Turn turn{request.tenant, request.tokens};
  const auto more = fresh_tokens(request.seed + 1, 1 + static_cast<uint32_t>(rng_.below(20)));
  turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
  turns_.push_back(std::move(turn));
}

}  // namespace skein::sim
