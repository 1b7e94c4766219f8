#include "engine/manager/direct_inference.h"

#include <algorithm>
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
  SKEIN_ASSIGN(outcome.reason, decode(sampler, request.max_tokens.value_or(room), on_token, cancel,
                                      outcome.generated_tokens));
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
void DirectInference::forward(std::span<const TokenId> tokens, bool wants_logits, Pooling pooling,
                              uint32_t second_from) {
  const auto start = static_cast<uint32_t>(cached_.size());
  const auto rows = static_cast<uint32_t>(tokens.size());
  const Sequence sequence = {.first_row = 0,
                             .rows = rows,
                             .start = start,
                             .writes_kv = true,
                             .blocks = std::span(blocks_).first(blocks_for(uint64_t{start} + rows)),
                             .second_from = second_from};
  const uint32_t last = rows - 1;
  const StepMark mark(step_started_, clock_->now());
  const std::lock_guard turn(model_->compute_mutex());
  const Rows logits =
      model_->decoder().forward({.tokens = tokens,
                                 .sequences = std::span(&sequence, 1),
                                 .logit_rows = std::span(&last, wants_logits ? 1 : 0),
                                 .wants_hidden = pooling != Pooling::kNone},
                                *cache_);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  if (pooling != Pooling::kNone) pool(pooling, start, rows);
  if (!wants_logits) return;
  // The next pass over the model, which may be another's, overwrites them.
  const std::span<const float> row = model_->backend().read(logits).row(0);
  std::copy(row.begin(), row.end(), logits_.begin());
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
    forward(prompt.first(count), wants_logits, pooling, request.second_from);
    prompt = prompt.subspan(count);
  }
  return true;
}

Result<FinishReason> DirectInference::decode(RequestSampler& sampler, uint32_t limit,
                                             const OnToken& on_token,
                                             const std::atomic<bool>* cancel, uint32_t& generated) {
  const std::span<const float> row = std::span(logits_).first(model_->vocab());
  while (true) {
    if (is_set(cancel)) return FinishReason::kClient;
    SKEIN_ASSIGN(const SampledToken token,
                 sampler.sample(row, static_cast<uint32_t>(cached_.size()), scratch_));
    if (token.stop) return FinishReason::kStop;
    sampler.accept(token.token);
    ++generated;
    if (!on_token(token) || token.last) return FinishReason::kStop;
    if (generated >= limit) return FinishReason::kLength;
    forward(std::span(&token.token, 1), true, Pooling::kNone);
  }
}

}  // namespace skein
