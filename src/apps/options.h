// Options that several commands take: the model with the machine's part in it, and sampling
// parameters under the API's names.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/loading/loaded_model.h"
#include "engine/sampling/sampling_params.h"

namespace skein::apps {

struct ModelFlags {
  std::string model;
  std::string precision = "default";
  std::string kv_dtype = "auto";
  std::string device = "cpu";
  std::string pooling = "auto";  // mean, last, rank, cls
  std::string tool_format = "auto", reasoning_format = "auto";
  std::string sampling_defaults = "auto";  // or openai
  std::string isa;                         // empty: the best there is
  uint32_t threads = 0;                    // 0: one per usable core
  uint32_t max_context = 0;                // 0: the model's own
};

// --model, --precision, --kv-dtype, --device, --cpu-isa, --threads, --max-context.
void add_model_options(CLI::App& command, ModelFlags& flags);

// The options of a load that the flags ask for, without limits.
ModelOptions model_options(const ModelFlags& flags);

std::unique_ptr<ComputePool> make_pool(const ModelFlags& flags);

// Loads what the flags name, with workspace for batches of `limits`; a terminal shows how far it
// is.
// For commands that write text: an encoder is refused. `backend_maker` as in ModelOptions.
Result<std::unique_ptr<LoadedModel>> load_model(
    const ModelFlags& flags, const DecoderLimits& limits, ComputePool& pool,
    decltype(ModelOptions::backend_maker) backend_maker = {});

// --speculation: whether tokens are guessed and computed several at once; on the CPU `auto` does.
void add_speculation_option(CLI::App& command, std::string& word);
// What its word comes to for `model`.
bool speculates(const std::string& word, const LoadedModel& model);

// The model's defaults stand for what the user did not say.
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

// Those, and --sampling-defaults of `model`.
void add_sampling_options(CLI::App& command, SamplingFlags& flags, ModelFlags& model);

// `defaults` with what the flags say. Without a seed one is drawn. Errors name the field; ids are
// checked when the request meets its vocabulary.
Result<SamplingParams> apply(const SamplingFlags& flags, SamplingParams defaults);

}  // namespace skein::apps
