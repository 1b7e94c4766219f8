#include "engine/sampling/sampler.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "base/rng.h"

namespace skein {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

void sort_unique(std::vector<TokenId>& ids) {
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Status too_much_work() {
  return out_of_range("the form takes more than {} units of work for one token",
                      grammar::kMaxMaskWork);
}

Status not_finite(LogitRow row) {
  size_t bad = 0;
  while (!row.allows(bad) || row.values[bad] <= FLT_MAX) ++bad;
  return internal_error("the logit of token {} is {}", bad, row.values[bad]);
}

// The largest logit of a row that has no NaN and no +inf.
Result<Argmax> checked_argmax(LogitRow row, const VocabularyScan& scan) {
  const Argmax peak = scan.argmax(row);
  if (!peak.all_finite) return not_finite(row);
  return peak;
}

}  // namespace

RequestSampler::RequestSampler(SamplingParams params, uint32_t vocab,
                               std::span<const TokenId> prompt, std::shared_ptr<const Form> form,
                               std::optional<uint32_t> thought_budget)
    : params_(std::move(params)), vocab_(vocab), first_stop_(prompt.size() + params_.min_tokens) {
  if (form != nullptr) {
    SKEIN_CHECK(form->grammar->trie().size() == vocab, "a form of {} tokens, a vocabulary of {}",
                form->grammar->trie().size(), vocab);
    form_.reset(new InForm{FormPlace(std::move(form), thought_budget)});
  }
  sort_unique(params_.allowed);
  sort_unique(params_.banned);
  sort_unique(params_.stop_ids);
  if (params_.repetition_penalty != 1) {
    for (const TokenId token : prompt) counts_.add_prompt(token);
  }
}

void RequestSampler::accept(TokenId token) {
  if (has_penalties()) counts_.add_answer(token);
  if (form_ == nullptr) return;
  form_->drawn.reset();
  if (!form_->next.empty() && form_->next.front().token == token) {
    form_->place = std::move(form_->next.front().place);
    form_->next.erase(form_->next.begin());
    return;
  }
  form_->next.clear();
  if (!form_->place.advance(token)) form_->lost = true;
}

void RequestSampler::draw_beside(std::span<const float> logits, uint32_t position,
                                 SamplerScratch& scratch) const {
  try {
    form_->drawn.emplace(Drawn{position, sample_now(logits, position, scratch, {})});
  } catch (const std::exception&) {
    form_->drawn.emplace(Drawn{position, Status{Code::kResourceExhausted, "out of memory"}});
  }
  form_->is_drawn_beside.store(false, std::memory_order_release);
}

bool RequestSampler::is_stop(TokenId token) const {
  return !params_.ignore_eos &&
         std::binary_search(params_.stop_ids.begin(), params_.stop_ids.end(), token);
}

bool RequestSampler::has_penalties() const {
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
         params_.frequency_penalty != 0;
}

Result<SampledToken> RequestSampler::sample(std::span<const float> logits, uint32_t position,
                                            SamplerScratch& scratch,
                                            std::span<const TokenId> ahead) const {
  if (is_drawn_beside()) {
    SampledToken later;
    later.put_off = true;
    return later;
  }
  const bool is_drawn =
      form_ != nullptr && form_->drawn && ahead.empty() && form_->drawn->position == position;
  return is_drawn ? form_->drawn->token : sample_now(logits, position, scratch, ahead);
}

Result<SampledToken> RequestSampler::sample_now(std::span<const float> logits, uint32_t position,
                                                SamplerScratch& scratch,
                                                std::span<const TokenId> ahead) const {
  SKEIN_CHECK(logits.size() == vocab_, "{} logits, the vocabulary has {} tokens", logits.size(),
              vocab_);
  scratch.candidates_.prepare(vocab_);
  SampledToken out;
  double log_sum = 0;
  if (params_.logprobs) SKEIN_TRY(add_top_logprobs(logits, scratch, out, log_sum));

  const std::span<const float> row = edited(logits, position, scratch, ahead);
  if (form_ != nullptr) {
    SKEIN_TRY(draw_within_work(row, position, scratch, ahead, out));
  } else {
    SKEIN_ASSIGN(const Argmax peak, checked_argmax(row, scratch.scan_));
    if (peak.value == kOut) {
      return invalid_argument("no token may be drawn: all {} are banned, not allowed or impossible",
                              vocab_);
    }
    out.token = draw(row, peak, position, scratch);
    out.stop = is_stop(out.token);
  }
  if (params_.logprobs && out.token != kNoToken) {
    out.logprob = static_cast<float>(logits[static_cast<size_t>(out.token)] - log_sum);
  }
  return out;
}

TokenId RequestSampler::draw(LogitRow row, const Argmax& peak, uint32_t position,
                             SamplerScratch& scratch) const {
  if (params_.temperature == 0) return static_cast<TokenId>(peak.index);
  return scratch.candidates_.draw(row, peak, params_, scratch.scan_, draw_at(position).random);
}

// In no more work than the thread of `scratch` can wait for, or not at all.
Status RequestSampler::draw_within_work(std::span<const float> row, uint32_t position,
                                        SamplerScratch& scratch, std::span<const TokenId> ahead,
                                        SampledToken& out) const {
  if (scratch.form_work_ == SamplerScratch::kAnyWork) {
    return draw_in_form(row, position, scratch, ahead, out);
  }
  const grammar::HurriedQuestions hurried(form_->place.grammar(), scratch.form_work_,
                                          scratch.more_work_);
  Status status;
  if (!hurried.late()) status = draw_in_form(row, position, scratch, ahead, out);
  if (!hurried.late()) return status;
  while (form_->next.size() > ahead.size()) form_->next.pop_back();
  out = {};
  out.put_off = true;
  return {};
}

Status RequestSampler::draw_in_form(std::span<const float> row, uint32_t position,
                                    SamplerScratch& scratch, std::span<const TokenId> ahead,
                                    SampledToken& out) const {
  if (form_->lost) return internal_error("a token was taken that the form does not allow");
  // Drafts that this step has drawn are known already.
  std::vector<Next>& next = form_->next;
  size_t known = 0;
  while (known < std::min(next.size(), ahead.size()) && next[known].token == ahead[known]) ++known;
  next.erase(next.begin() + static_cast<ptrdiff_t>(known), next.end());
  for (const TokenId token : ahead.subspan(known)) {
    next.push_back({token, place_behind_next()});
    if (next.back().place.advance(token)) continue;
    next.pop_back();
    return internal_error("the form does not allow the draft {}", token);
  }
  if (next.empty()) return draw_in_place(form_->place, row, position, scratch, out);
  FormPlace place = next.back().place;
  return draw_in_place(place, row, position, scratch, out);
}

const grammar::TokenMask* RequestSampler::mask_at(FormPlace& place) const {
  uint64_t ns = 0;
  const grammar::TokenMask* mask = place.mask(ns);
  // One thread draws at a time.
  form_->masks.store(form_->masks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (ns > form_->slowest_mask_ns.load(std::memory_order_relaxed)) form_->slowest_mask_ns = ns;
  return mask;
}

std::optional<FormUse> RequestSampler::form_use() const {
  if (form_ == nullptr) return std::nullopt;
  static constexpr std::string_view kZones[] = {"free", "bound", "ended"};
  return FormUse{kZones[static_cast<size_t>(form_->zone.load())], form_->masks.load(),
                 form_->slowest_mask_ns.load() / 1000};
}

Status RequestSampler::draw_in_place(FormPlace& place, std::span<const float> row,
                                     uint32_t position, SamplerScratch& scratch,
                                     SampledToken& out) const {
  const bool stops = !params_.ignore_eos && position >= first_stop_ && place.may_end();
  const grammar::TokenMask* mask = nullptr;
  const auto make_mask = [&] {
    if (mask == nullptr && !place.failed()) mask = mask_at(place);
    return mask != nullptr;
  };
  out.token = place.forced();
  if (out.token == kNoToken) {
    if (params_.temperature > 0 && !make_mask()) return too_much_work();
    if (mask == nullptr || mask->is_free()) {
      out.token = draw_unmasked(place, row, position, stops, scratch);
    }
  }
  if (out.token == kNoToken) {
    if (!make_mask()) return too_much_work();
    const LogitRow allowed(row, allowed_by(*mask, stops, scratch));
    SKEIN_ASSIGN(const Argmax peak, checked_argmax(allowed, scratch.scan_));
    if (peak.value == kOut) {
      if (!place.may_end()) {
        return invalid_argument(
            "none of the tokens that the form allows may be drawn: they are "
            "banned, not allowed or impossible");
      }
      out.stop = true;  // without a token
      return {};
    }
    out.token = draw(allowed, peak, position, scratch);
  }
  out.stop = is_stop(out.token);
  if (out.stop) return {};
  form_->next.push_back({out.token, place});
  FormPlace& next = form_->next.back().place;
  if (!next.advance(out.token)) {
    const bool failed = next.failed();
    form_->next.pop_back();
    return failed ? too_much_work() : internal_error("the form's mask is wrong");
  }
  out.last = next.must_end();
  const bool free = mask != nullptr && mask->is_free();
  form_->zone = out.last ? grammar::Zone::kEnded
                : free   ? grammar::Zone::kFree
                         : grammar::Zone::kBound;
  return {};
}

// A token that the form allows, drawn from all of them; kNoToken where it allows another one only.
// Of a greedy draw it is the largest of those that are allowed, too, the lowest id among equals as
// well, so the rest need not be known; where nearly all are allowed none is worth a mask.
TokenId RequestSampler::draw_unmasked(const FormPlace& place, std::span<const float> row,
                                      uint32_t position, bool stops,
                                      SamplerScratch& scratch) const {
  const Argmax peak = scratch.scan_.argmax(row);
  if (!peak.all_finite || peak.value == kOut) return kNoToken;
  const TokenId token = draw(row, peak, position, scratch);
  return (is_stop(token) ? stops : place.allows(token)) ? token : kNoToken;
}

// The mask with the stop tokens, if they count: in the scratch.
const uint64_t* RequestSampler::allowed_by(const grammar::TokenMask& mask, bool stops,
                                           SamplerScratch& scratch) const {
  scratch.allowed_ = mask;
  if (!params_.ignore_eos) {
    for (const TokenId id : params_.stop_ids) {
      if (stops) {
        scratch.allowed_.set(id);
      } else {
        scratch.allowed_.clear(id);
      }
    }
  }
  return scratch.allowed_.words().data();
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

bool RequestSampler::holds_off_stops(uint32_t position) const {
  return position < first_stop_ && !params_.ignore_eos;
}

bool RequestSampler::leaves_as_is(uint32_t position, std::span<const TokenId> ahead) const {
  return params_.allowed.empty() && params_.banned.empty() && params_.logit_bias.empty() &&
         !holds_off_stops(position) && counts_.entries().empty() &&
         (ahead.empty() || !has_penalties());
}

bool RequestSampler::takes_peak(uint32_t position, std::span<const TokenId> ahead) const {
  return params_.temperature == 0 && !params_.logprobs && form_ == nullptr &&
         leaves_as_is(position, ahead);
}

bool RequestSampler::only_draws() const {
  const bool plain =
      params_.temperature == 0 || (params_.temperature >= Draw::kColdest && params_.typical_p == 1);
  return plain && !params_.logprobs && form_ == nullptr && !has_penalties() &&
         leaves_as_is(static_cast<uint32_t>(first_stop_ - params_.min_tokens), {});
}

Draw RequestSampler::draw_at(uint32_t position) const {
  if (params_.temperature == 0) return {};
  return {params_.temperature, params_.top_k, params_.top_p, params_.min_p,
          Rng(random_at(params_.seed, params_.choice, position)).next()};
}

SampledToken RequestSampler::sample_found(TokenId token) const {
  SampledToken out;
  out.token = token;
  out.stop = is_stop(token);
  return out;
}

// The row as the draw sees it: `logits` itself when nothing changes it.
std::span<const float> RequestSampler::edited(std::span<const float> logits, uint32_t position,
                                              SamplerScratch& scratch,
                                              std::span<const TokenId> ahead) const {
  if (leaves_as_is(position, ahead)) return logits;
  std::vector<float>& row = scratch.row_;
  if (params_.allowed.empty()) {
    row.assign(logits.begin(), logits.end());
  } else {
    row.assign(logits.size(), kOut);
    for (const TokenId id : params_.allowed) row[id] = logits[id];
  }
  for (const TokenId id : params_.banned) row[id] = kOut;
  for (const auto& [id, bias] : params_.logit_bias) row[id] += bias;
  if (holds_off_stops(position)) {
    for (const TokenId id : params_.stop_ids) row[id] = kOut;
  }
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
