// Sampler: logits of one row to one token.
//
// Deterministic: the token depends on the logits, the parameters, the tokens before it and the
// number (seed, choice, position), and on nothing else. Greedy is exact: the largest logit, the
// lowest id among equals. The order of what is applied: allowed, banned, bias and min_tokens;
// penalties; temperature; typical_p, top_k, top_p, min_p; the draw.
//
// Thread-safety: rows may be sampled at the same time by different threads, each with a scratch of
// its own; a RequestSampler is used by one thread at a time. Sampling allocates nothing once a
// scratch has seen its vocabulary, unless the request asks for logprobs, whose room is in
// SampledToken.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "engine/sampling_params.h"

namespace skein {

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0;
};

struct SampledToken {
  TokenId token = kNoToken;
  bool stop = false;  // one of the stop ids, and they count
  float logprob = 0;  // with SamplingParams::logprobs
  uint32_t top_count = 0;
  std::array<TokenLogprob, kMaxTopLogprobs> top;  // likeliest first
};

// Memory that one thread samples with.
class SamplerScratch;

// What a request's sampling remembers: its parameters and the counts of its tokens.
class RequestSampler {
 public:
  // `params` are valid for `vocab`. The prompt counts for the repetition penalty.
  RequestSampler(SamplingParams params, uint32_t vocab, std::span<const TokenId> prompt);

  const SamplingParams& params() const { return params_; }

  // The token at `position` (0: the first of the answer), which is not remembered until accept().
  // kInternal, naming it, for logits that are not finite where they count.
  Result<SampledToken> sample(std::span<const float> logits, uint32_t position,
                              SamplerScratch& scratch) const;
  void accept(TokenId token);

 private:
  SamplingParams params_;
};

}  // namespace skein
