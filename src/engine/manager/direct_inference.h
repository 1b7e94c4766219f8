// DirectInference: one request at a time over a model, with a KV cache of its own.
//
//   SKEIN_ASSIGN(auto direct, DirectInference::create(model, clock));
//   SKEIN_ASSIGN(const DirectOutcome out, direct->generate({.prompt = ids}, on_token));
//
// Gives the tokens that a batch would give. What the cache holds of the request before is used
// again as far as the new prompt begins with the same tokens and is the same tenant's, which
// changes time and nothing else; a mean over all rows computes all of them. Not thread-safe, but
// others may use the model meanwhile: each pass takes its turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/loading/loaded_model.h"
#include "engine/loop/pooling.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sampling_params.h"
#include "engine/speculation/drafter.h"
#include "sched/cost_model.h"
#include "sched/types.h"

namespace skein {

struct DirectRequest {
  std::span<const TokenId> prompt;
  SamplingParams sampling;
  std::optional<uint32_t> max_tokens;  // absent: to the end of the context
  Hash128 salt = {};                   // nothing that another salt left is used again
  std::shared_ptr<const Form> form = {};
  std::optional<uint32_t> thought_budget = {};  // as in GenerationRequest
  Pooling pooling = Pooling::kNone;             // other than kNone: a vector, and no tokens
  uint32_t second_from = 0;                     // as in GenerationRequest
  bool speculates = false;  // several tokens are computed at once where they can be guessed
  uint64_t tenant = 0;      // whose earlier answers are guessed from; salts may be shared
};

struct DirectOutcome {
  FinishReason reason = FinishReason::kStop;  // kStop, kLength or kClient
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt: they were in the cache
  uint32_t generated_tokens = 0;
  uint32_t drafted_tokens = 0;     // guesses that were computed
  uint32_t accepted_tokens = 0;    // of these, came true
  TimeUs prefill_us = 0;           // until the first token's logits
  TimeUs decode_us = 0;            // the rest
  std::vector<float> hidden = {};  // with pooling: the vector
};

class DirectInference {
 public:
  // Gets every token of the answer as it is drawn; a stop token is not one of them. False ends the
  // request with kStop: a stop string is complete.
  using OnToken = std::function<bool(const SampledToken& token)>;

  // `model` and `clock` must outlive it. kResourceExhausted when the KV cache of one whole context
  // cannot be had.
  static Result<std::unique_ptr<DirectInference>> create(LoadedModel& model, const Clock& clock);

  // Ends with kClient soon after `cancel` became true (nullptr: never). Refuses, before anything is
  // computed, an empty prompt, an id outside the vocabulary, a request beyond the context
  // (kOutOfRange, all numbers) and invalid sampling parameters.
  Result<DirectOutcome> generate(const DirectRequest& request, const OnToken& on_token,
                                 const std::atomic<bool>* cancel = nullptr);

  // How many tokens of the latest prompt were found computed. For the thread that generates, also
  // while it does.
  uint32_t cached_tokens() const { return cached_tokens_; }

  // When the pass over the model began that is under way; kNever between two. Any thread may ask.
  TimeUs step_started() const { return step_started_.load(std::memory_order_relaxed); }

 private:
  DirectInference(LoadedModel& model, const Clock& clock, std::unique_ptr<KvCache> cache);
  Status check(const DirectRequest& request) const;
  uint32_t reuse(const DirectRequest& request);
  // The logits of the last `logit_rows` tokens are kept.
  void forward(std::span<const TokenId> tokens, uint32_t logit_rows, Pooling pooling,
               uint32_t second_from = 0);
  bool prefill(const DirectRequest& request, const std::atomic<bool>* cancel);
  void pool(Pooling pooling, uint32_t start, uint32_t rows);
  Result<FinishReason> decode(RequestSampler& sampler, uint32_t limit, const OnToken& on_token,
                              const std::atomic<bool>* cancel, DirectOutcome& outcome);
  Result<std::optional<FinishReason>> draw_tokens(RequestSampler& sampler, uint32_t limit,
                                                  const OnToken& on_token, DirectOutcome& outcome);
  void guess(uint32_t most);

  LoadedModel* model_;
  const Clock* clock_;
  std::unique_ptr<KvCache> cache_;
  std::vector<BlockId> blocks_;  // all of the cache's, in order
  std::vector<TokenId> cached_;  // the tokens whose keys and values the cache holds
  Hash128 cached_salt_;          // whose they are
  uint32_t cached_tokens_ = 0;
  std::vector<float> logits_;  // rows of the whole vocabulary
  CostModel cost_;
  DraftMemory draft_memory_;
  std::unique_ptr<Drafter> drafter_;  // of the request, where guesses are made
  std::vector<TokenId> drawn_;        // after the latest pass
  std::vector<TokenId> drafts_;       // guesses at what follows these, then what was computed
  std::vector<uint16_t> odds_;
  Pooler pooler_;
  SamplerScratch scratch_;
  std::atomic<TimeUs> step_started_{kNever};
};

}  // namespace skein
