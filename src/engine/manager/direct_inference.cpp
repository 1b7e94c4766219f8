#include "engine/manager/direct_inference.h"

#include <algorithm>
#include <array>
#include <utility>

namespace skein {
namespace {

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

// Says since when a pass is under way, also to its end by an exception.
class StepMark {
 public:
  StepMark(std::atomic<TimeUs>& started, TimeUs now) : started_(started) { started_ = now; }
  ~StepMark() { started_ = kNever; }
  StepMark(const StepMark&) = delete;
  StepMark& operator=(const StepMark&) = delete;

 private:
  std::atomic<TimeUs>& started_;
};

}  // namespace

Result<std::unique_ptr<DirectInference>> DirectInference::create(LoadedModel& model,
                                                                 const Clock& clock) {
  const auto blocks = static_cast<uint32_t>(blocks_for(model.decoder().max_context()));
  SKEIN_ASSIGN(auto cache, model.make_kv(blocks));
  return std::unique_ptr<DirectInference>(new DirectInference(model, clock, std::move(cache)));
}

DirectInference::DirectInference(LoadedModel& model, const Clock& clock,
                                 std::unique_ptr<KvCache> cache)
    : model_(&model), clock_(&clock), cache_(std::move(cache)), scratch_(model.backend().scan()) {
  blocks_.reserve(cache_->blocks());
  for (uint32_t i = 0; i < cache_->blocks(); ++i) blocks_.emplace_back(i);
  cached_.reserve(model.decoder().max_context());
  logits_.resize(model.decoder().spec().vocab);
  drawn_.reserve(1 + Drafter::kMostDrafts);
}

Result<DirectOutcome> DirectInference::generate(const DirectRequest& request,
                                                const OnToken& on_token,
                                                const std::atomic<bool>* cancel) {
  SKEIN_TRY(check(request));
  DirectOutcome outcome;
  outcome.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const TimeUs started = clock_->now();
  outcome.cached_tokens = cached_tokens_ = reuse(request);
  if (!prefill(request, cancel)) {
    outcome.reason = FinishReason::kClient;
    outcome.prefill_us = clock_->now() - started;
    return outcome;
  }
  const TimeUs prefilled = clock_->now();
  outcome.prefill_us = prefilled - started;
  if (request.pooling != Pooling::kNone) {
    outcome.hidden = pooler_.take();
    SKEIN_TRY(check_finite(outcome.hidden));
    return outcome;
  }
  const uint32_t room = model_->decoder().max_context() - outcome.prompt_tokens;
  RequestSampler sampler(request.sampling, model_->vocab(), request.prompt, request.form,
                         request.thought_budget);
  drafter_ = nullptr;
  if (request.speculates) {
    drafter_ =
        std::make_unique<Drafter>(request.prompt, draft_memory_.of(request.tenant, request.salt));
  }
  SKEIN_ASSIGN(outcome.reason,
               decode(sampler, request.max_tokens.value_or(room), on_token, cancel, outcome));
  if (drafter_ != nullptr) drafter_->remember_answer();
  outcome.decode_us = clock_->now() - prefilled;
  return outcome;
}

Status DirectInference::check(const DirectRequest& request) const {
  const std::span<const TokenId> prompt = request.prompt;
  if (prompt.empty()) return invalid_argument("the prompt has 0 tokens; it needs at least 1");
  const bool samples = request.pooling == Pooling::kNone;
  if (samples && model_->spec().encoder) {
    return unimplemented(
        "tokens are asked for; this model is an encoder, which makes vectors alone");
  }
  if (samples && request.max_tokens == 0U)
    return invalid_argument("max_tokens is 0; it must be at least 1");
  const uint32_t vocab = model_->decoder().spec().vocab;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || static_cast<uint32_t>(prompt[i]) >= vocab) {
      return invalid_argument("prompt token {} has id {}; the vocabulary has {}", i, prompt[i],
                              vocab);
    }
  }
  const uint64_t answer = samples ? request.max_tokens.value_or(1) : 0;
  if (prompt.size() + answer > model_->decoder().max_context()) {
    return out_of_range("prompt of {} tokens plus {} to generate is {}; the context holds {}",
                        prompt.size(), answer, prompt.size() + answer,
                        model_->decoder().max_context());
  }
  return request.sampling.validate(model_->vocab());
}

// Drops from the cache what is another tenant's or what the prompt does not begin with, and at
// least its last token, whose logits are needed; all of it where every row is. Returns what is
// left.
uint32_t DirectInference::reuse(const DirectRequest& request) {
  const bool every_row = request.pooling == Pooling::kMean || model_->spec().encoder;
  if (request.salt != cached_salt_ || every_row) cached_.clear();
  cached_salt_ = request.salt;
  const std::span<const TokenId> prompt = request.prompt;
  const auto differs = std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end());
  const auto common = static_cast<size_t>(differs.first - cached_.begin());
  cached_.resize(std::min(common, prompt.size() - 1));
  return static_cast<uint32_t>(cached_.size());
}

// Computes tokens that follow the cached ones.
void DirectInference::forward(std::span<const TokenId> tokens, uint32_t logit_rows, Pooling pooling,
                              uint32_t second_from) {
  const auto start = static_cast<uint32_t>(cached_.size());
  const auto rows = static_cast<uint32_t>(tokens.size());
  const Sequence sequence = {.first_row = 0,
                             .rows = rows,
                             .start = start,
                             .writes_kv = true,
                             .blocks = std::span(blocks_).first(blocks_for(uint64_t{start} + rows)),
                             .second_from = second_from};
  std::array<uint32_t, 1 + Drafter::kMostDrafts> wanted;
  for (uint32_t i = 0; i < logit_rows; ++i) wanted[i] = rows - logit_rows + i;
  const TimeUs started = clock_->now();
  const StepMark mark(step_started_, started);
  const std::lock_guard turn(model_->compute_mutex());
  const Rows logits = model_->decoder().forward({.tokens = tokens,
                                                 .sequences = std::span(&sequence, 1),
                                                 .logit_rows = std::span(wanted).first(logit_rows),
                                                 .wants_hidden = pooling != Pooling::kNone},
                                                *cache_);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  if (pooling != Pooling::kNone) pool(pooling, start, rows);
  if (logit_rows == 0) return;
  // The next pass over the model, which may be another's, overwrites them.
  const HostRows read = model_->backend().read(logits);
  const size_t width = model_->decoder().spec().vocab;
  if (logits_.size() < logit_rows * width) logits_.resize(logit_rows * width);
  for (uint32_t i = 0; i < logit_rows; ++i) {
    const std::span<const float> row = read.row(i);
    std::copy(row.begin(), row.end(), logits_.begin() + static_cast<ptrdiff_t>(i * width));
  }
  StepLoad load;
  load.add(start, rows);
  load.unsampled = rows - logit_rows;
  cost_.observe(load, clock_->now() - started);
}

// Takes the hidden states of the pass that was queued.
void DirectInference::pool(Pooling pooling, uint32_t start, uint32_t rows) {
  const HostRows hidden = model_->backend().read(model_->decoder().hidden(rows));
  std::vector<float> values;
  for (size_t row = pooling == Pooling::kLast ? rows - 1 : 0; row < rows; ++row) {
    values.insert(values.end(), hidden.row(row).begin(), hidden.row(row).end());
  }
  pooler_.add(pooling, start, rows, values);
}

// Computes what is not cached of the prompt; an encoder's limits hold all of it. False when it was
// cancelled.
bool DirectInference::prefill(const DirectRequest& request, const std::atomic<bool>* cancel) {
  const size_t chunk = model_->decoder().limits().rows;
  const Pooling pooling = request.pooling;
  std::span<const TokenId> prompt = request.prompt.subspan(cached_.size());
  while (!prompt.empty()) {
    if (is_set(cancel)) return false;
    const size_t count = std::min(chunk, prompt.size());
    const bool wants_logits = count == prompt.size() && pooling == Pooling::kNone;
    forward(prompt.first(count), wants_logits ? 1 : 0, pooling, request.second_from);
    prompt = prompt.subspan(count);
  }
  return true;
}

Result<FinishReason> DirectInference::decode(RequestSampler& sampler, uint32_t limit,
                                             const OnToken& on_token,
                                             const std::atomic<bool>* cancel,
                                             DirectOutcome& outcome) {
  drafts_.clear();
  while (true) {
    if (is_set(cancel)) return FinishReason::kClient;
    SKEIN_ASSIGN(const std::optional<FinishReason> ended,
                 draw_tokens(sampler, limit, on_token, outcome));
    if (ended) return *ended;
    const auto right = static_cast<uint32_t>(drawn_.size()) - 1;
    cached_.resize(cached_.size() - (drafts_.size() - right));
    guess(limit - outcome.generated_tokens - 1);
    outcome.drafted_tokens += static_cast<uint32_t>(drafts_.size());
    const TokenId last = drawn_.back();
    drawn_.assign(1, last);
    drawn_.insert(drawn_.end(), drafts_.begin(), drafts_.end());
    forward(drawn_, static_cast<uint32_t>(drawn_.size()), Pooling::kNone);
  }
}

// One token, and another one after each guess that came true; what is left of the guesses is still
// in the cache. Nothing: the answer goes on.
Result<std::optional<FinishReason>> DirectInference::draw_tokens(RequestSampler& sampler,
                                                                 uint32_t limit,
                                                                 const OnToken& on_token,
                                                                 DirectOutcome& outcome) {
  const auto position = static_cast<uint32_t>(cached_.size() - drafts_.size());
  const size_t width = model_->decoder().spec().vocab;
  drawn_.clear();
  for (uint32_t n = 0; n <= drafts_.size(); ++n) {
    if (n > 0) ++outcome.accepted_tokens;
    const std::span<const float> row = std::span(logits_).subspan(n * width, model_->vocab());
    SKEIN_ASSIGN(const SampledToken token, sampler.sample(row, position + n, scratch_));
    if (token.stop) return std::optional(FinishReason::kStop);
    sampler.accept(token.token);
    ++outcome.generated_tokens;
    drawn_.push_back(token.token);
    if (!on_token(token) || token.last) return std::optional(FinishReason::kStop);
    if (outcome.generated_tokens >= limit) return std::optional(FinishReason::kLength);
    if (n < drafts_.size() && token.token != drafts_[n]) break;
  }
  return std::optional<FinishReason>();
}

// Leaves the drafts that are worth computing behind the tokens that were drawn.
void DirectInference::guess(uint32_t most) {
  drafts_.clear();
  if (drafter_ == nullptr) return;
  drafter_->follow(drawn_, drafts_, odds_);
  const DecoderLimits& limits = model_->decoder().limits();
  most = std::min({most, limits.rows - 1, limits.logit_rows - 1});
  const auto start = static_cast<uint32_t>(cached_.size());
  StepLoad load;
  load.add(start, 1);
  DraftValue value(cost_, load, 1);
  for (uint32_t i = 0; i < std::min<size_t>(most, drafts_.size()); ++i) {
    value.add(start + 1 + i, odds_[i]);
  }
  drafts_.resize(value.best());
}

}  // namespace skein
