#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "base/rng.h"

namespace skein {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

void sort_unique(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Status not_finite(std::span<const float> row) {
  const auto bad = std::find_if(row.begin(), row.end(), [](float x) { return !(x <= FLT_MAX); });
  return internal_error("the logit of token {} is {}", bad - row.begin(), *bad);
}

// The largest logit of a row that has no NaN and no +inf.
Result<Argmax> checked_argmax(std::span<const float> row, const VocabularyScan& scan) {
  const Argmax peak = scan.argmax(row);
  if (!peak.all_finite) return not_finite(row);
  return peak;
}

}  // namespace

RequestSampler::RequestSampler(SamplingParams params, uint32_t vocab,
                               std::span<const TokenId> prompt,
                               std::shared_ptr<TokenConstraint> constraint)
    : params_(std::move(params)),
      vocab_(vocab),
      first_stop_(prompt.size() + params_.min_tokens),
      constraint_(std::move(constraint)) {
  sort_unique(params_.allowed);
  sort_unique(params_.banned);
  sort_unique(params_.stop_ids);
  if (params_.repetition_penalty != 1) {
    for (const TokenId token : prompt) counts_.add_prompt(token);
  }
}

void RequestSampler::accept(TokenId token) {
  if (has_penalties()) counts_.add_answer(token);
  if (constraint_) constraint_->accept(token);
}

bool RequestSampler::has_penalties() const {
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
         params_.frequency_penalty != 0;
}

Result<SampledToken> RequestSampler::sample(std::span<const float> logits, uint32_t position,
                                            SamplerScratch& scratch,
                                            std::span<const TokenId> ahead) const {
  SKEIN_CHECK(logits.size() == vocab_, "{} logits, the vocabulary has {} tokens", logits.size(),
              vocab_);
  scratch.candidates_.prepare(vocab_);
  SampledToken out;
  double log_sum = 0;
  if (params_.logprobs) SKEIN_TRY(add_top_logprobs(logits, scratch, out, log_sum));

  const std::span<const float> row = edited(logits, position, scratch, ahead);
  SKEIN_ASSIGN(const Argmax peak, checked_argmax(row, scratch.scan_));
  if (peak.value == kOut) {
    return invalid_argument("no token may be drawn: all {} are banned, not allowed or impossible",
                            vocab_);
  }
  out.token = static_cast<TokenId>(peak.index);
  if (params_.temperature > 0) {
    const uint64_t random = random_at(params_.seed, params_.choice, position);
    out.token = scratch.candidates_.draw(row, peak, params_, scratch.scan_, random);
  }
  out.stop = !params_.ignore_eos &&
             std::binary_search(params_.stop_ids.begin(), params_.stop_ids.end(), out.token);
  out.last = constraint_ && constraint_->is_last(ahead, out.token);
  if (params_.logprobs) {
    out.logprob = static_cast<float>(logits[static_cast<size_t>(out.token)] - log_sum);
  }
  return out;
}

// `log_sum` is what a logit has to lose to become a log-probability.
Status RequestSampler::add_top_logprobs(std::span<const float> logits, SamplerScratch& scratch,
                                        SampledToken& out, double& log_sum) const {
  SKEIN_ASSIGN(const Argmax peak, checked_argmax(logits, scratch.scan_));
  if (peak.value == kOut) return internal_error("all {} logits are -inf", logits.size());
  const double sum = scratch.scan_.sum_exp(logits, peak.value, 1);
  log_sum = peak.value + std::log(sum);
  if (params_.top_logprobs == 0) return {};
  for (const Candidate& candidate :
       scratch.candidates_.largest(logits, params_.top_logprobs, scratch.scan_)) {
    out.top[out.top_count++] = {candidate.token, static_cast<float>(candidate.logit - log_sum)};
  }
  return {};
}

// The row as the draw sees it: `logits` itself when nothing changes it.
std::span<const float> RequestSampler::edited(std::span<const float> logits, uint32_t position,
                                              SamplerScratch& scratch,
                                              std::span<const TokenId> ahead) const {
  const bool holds_off_stops = position < first_stop_ && !params_.ignore_eos;
  if (params_.allowed.empty() && params_.banned.empty() && params_.logit_bias.empty() &&
      !holds_off_stops && !constraint_ && counts_.entries().empty() &&
      (ahead.empty() || !has_penalties())) {
    return logits;
  }
  std::vector<float>& row = scratch.row_;
  if (params_.allowed.empty()) {
    row.assign(logits.begin(), logits.end());
  } else {
    row.assign(logits.size(), kOut);
    for (const TokenId id : params_.allowed) row[id] = logits[id];
  }
  for (const TokenId id : params_.banned) row[id] = kOut;
  for (const auto& [id, bias] : params_.logit_bias) row[id] += bias;
  if (holds_off_stops) {
    for (const TokenId id : params_.stop_ids) row[id] = kOut;
  }
  if (constraint_) constraint_->mask(ahead, row);
  if (ahead.empty() || !has_penalties()) {
    penalize(row, counts_);
  } else {
    TokenCounts counts = counts_;
    for (const TokenId token : ahead) counts.add_answer(token);
    penalize(row, counts);
  }
  return row;
}

void RequestSampler::penalize(std::span<float> row, const TokenCounts& counts) const {
  for (const TokenCounts::Entry& entry : counts.entries()) {
    float& logit = row[static_cast<size_t>(entry.token)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (entry.in_answer == 0) continue;
    logit -=
        params_.presence_penalty + params_.frequency_penalty * static_cast<float>(entry.in_answer);
  }
}

}  // namespace skein
