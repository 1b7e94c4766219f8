// How one request wants its tokens drawn. Values of the API's defaults.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace skein {

inline constexpr uint32_t kMaxTopLogprobs = 20;
// A smaller one, which divides, would make infinite what is a sound logit.
inline constexpr float kMinRepetitionPenalty = 0.01F;
inline constexpr float kMaxRepetitionPenalty = 100;

struct SamplingParams {
  float temperature = 1;         // 0: greedy; at most 100
  uint32_t top_k = 0;            // 0: off
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1]: relative to the likeliest token
  float typical_p = 1;           // (0, 1]
  float repetition_penalty = 1;  // [0.01, 100]: over prompt and answer; divides positive logits
  float presence_penalty = 0;    // [-2, 2]: over the answer
  float frequency_penalty = 0;   // [-2, 2]: over the answer
  std::vector<std::pair<TokenId, float>> logit_bias;  // [-100, 100] each
  std::vector<TokenId> allowed;                       // empty: all
  std::vector<TokenId> banned;
  uint32_t min_tokens = 0;        // stop tokens are out of reach before
  std::vector<TokenId> stop_ids;  // of the model and of the request, sorted
  bool ignore_eos = false;        // the stop tokens are tokens like others
  uint64_t seed = 0;
  uint32_t choice = 0;        // of n: siblings draw differently
  bool logprobs = false;      // of the raw logits, before temperature and penalties
  uint32_t top_logprobs = 0;  // at most kMaxTopLogprobs; needs logprobs

  // kInvalidArgument names the field, its value and its range; ids are checked against `vocab`.
  Status validate(uint32_t vocab) const;
};

}  // namespace skein
