// The fields that every endpoint that generates text shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "engine/sampling/sampling_params.h"
#include "server/api/fields.h"

namespace skein::api {

inline constexpr uint32_t kMaxChoices = 128;
inline constexpr size_t kMaxStopIds = 1024;
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxNameBytes = 512;  // of models, users, ids

struct Generation {
  std::string model;  // empty: the first
  std::optional<uint32_t> max_tokens;
  uint32_t n = 1;
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool skip_special_tokens = true;
  bool timings_per_token = false;
  bool return_progress = false;
  std::optional<TimeUs> timeout_us;  // for the whole request
  std::optional<uint64_t> seed;      // without one it is drawn

  // Where the request says nothing, the model's defaults count.
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  // All else of the sampling; stop_ids are the request's own, unsorted ids of no known vocabulary.
  SamplingParams sampling;

  // Ready for validate(): with the model's `defaults` where the request says nothing, a drawn seed,
  // and the model's stop tokens.
  SamplingParams sampling_params(const SamplingParams& defaults, uint64_t drawn_seed) const;
};

// Sampling, stop, seed, n, stream, stream_options, timeout, model: OpenAI's names and the usual
// extras. Not max_tokens and logprobs, which differ between endpoints.
void read_generation(const Fields& fields, Generation& generation);

// One field of a token count, at least 1.
std::optional<uint32_t> read_max_tokens(const Fields& fields, std::string_view name);

// A string or a list of strings, none of them empty.
std::vector<std::string> read_stops(const Fields& fields, std::string_view name);

}  // namespace skein::api
