// The options by which commands take sampling parameters, under the API's names.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/sampling/sampling_params.h"

namespace skein::apps {

// What the user said; the model's defaults stand for the rest.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> typical_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::vector<TokenId> allowed_token_ids;
  std::vector<TokenId> banned_token_ids;
  std::vector<TokenId> stop_token_ids;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::optional<uint64_t> seed;
};

void add_sampling_options(CLI::App& command, SamplingFlags& flags);

// `defaults` with what the flags say. Without a seed one is drawn. Errors name the field; ids are
// checked when the request meets its vocabulary.
Result<SamplingParams> apply(const SamplingFlags& flags, SamplingParams defaults);

}  // namespace skein::apps
