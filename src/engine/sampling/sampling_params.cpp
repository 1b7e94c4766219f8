#include "engine/sampling/sampling_params.h"

#include <string_view>

namespace skein {
namespace {

// Written so that NaN fails.
Status in_range(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("{} is {}, it must be from {} to {}", field, value, low, high);
}

Status above_zero(std::string_view field, float value, float high) {
  if (value > 0 && value <= high) return {};
  return invalid_argument("{} is {}, it must be above 0 and at most {}", field, value, high);
}

Status known_id(std::string_view field, TokenId id, uint32_t vocab) {
  if (id >= 0 && static_cast<uint32_t>(id) < vocab) return {};
  return invalid_argument("{} has token {}, the vocabulary has {} tokens", field, id, vocab);
}

Status known_ids(std::string_view field, const std::vector<TokenId>& ids, uint32_t vocab) {
  for (const TokenId id : ids) SKEIN_TRY(known_id(field, id, vocab));
  return {};
}

}  // namespace

Status SamplingParams::validate(uint32_t vocab) const {
  SKEIN_TRY(in_range("temperature", temperature, 0, 100));
  SKEIN_TRY(above_zero("top_p", top_p, 1));
  SKEIN_TRY(in_range("min_p", min_p, 0, 1));
  SKEIN_TRY(above_zero("typical_p", typical_p, 1));
  SKEIN_TRY(in_range("repetition_penalty", repetition_penalty, kMinRepetitionPenalty,
                     kMaxRepetitionPenalty));
  SKEIN_TRY(in_range("presence_penalty", presence_penalty, -2, 2));
  SKEIN_TRY(in_range("frequency_penalty", frequency_penalty, -2, 2));
  for (const auto& [id, bias] : logit_bias) {
    SKEIN_TRY(known_id("logit_bias", id, vocab));
    SKEIN_TRY(in_range("logit_bias", bias, -100, 100));
  }
  SKEIN_TRY(known_ids("allowed", allowed, vocab));
  SKEIN_TRY(known_ids("banned", banned, vocab));
  SKEIN_TRY(known_ids("stop_ids", stop_ids, vocab));
  if (top_logprobs > kMaxTopLogprobs) {
    return invalid_argument("top_logprobs is {}, it must be from 0 to {}", top_logprobs,
                            kMaxTopLogprobs);
  }
  if (top_logprobs > 0 && !logprobs) {
    return invalid_argument("top_logprobs is {}, it needs logprobs", top_logprobs);
  }
  return {};
}

}  // namespace skein
