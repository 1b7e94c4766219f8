#include "apps/options.h"

#include <charconv>
#include <random>
#include <utility>

#include "apps/files.h"
#include "apps/terminal.h"
#include "base/resources.h"

namespace skein::apps {
namespace {

Precision precision_of(const ModelFlags& flags) {
  if (flags.precision == "f32") return Precision::kF32;
  return flags.precision == "high" ? Precision::kHigh : Precision::kDefault;
}

std::optional<KvType> kv_type_of(const ModelFlags& flags) {
  if (flags.kv_dtype == "auto") return std::nullopt;
  if (flags.kv_dtype == "int8") return KvType::kInt8;
  return flags.kv_dtype == "f32" ? KvType::kF32 : KvType::kBf16;
}

// "15=-2.5"
Result<std::pair<TokenId, float>> parse_bias(const std::string& text) {
  std::pair<TokenId, float> bias;
  const char* end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.first);
  if (id.ec == std::errc() && id.ptr != end && *id.ptr == '=') {
    const auto value = std::from_chars(id.ptr + 1, end, bias.second);
    if (value.ec == std::errc() && value.ptr == end) return bias;
  }
  return invalid_argument("--logit-bias {}: expected ID=BIAS, for example 15=-2.5", text);
}

template <class T>
void set(const std::optional<T>& from, T& to) {
  if (from) to = *from;
}

void append(const std::vector<TokenId>& from, std::vector<TokenId>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

void add_model_options(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--model", flags.model,
                  "GGUF file, Hugging Face folder, name in the model folder, or 'default'")
      ->required();
  command
      .add_option("--precision", flags.precision,
                  "Arithmetic: f32 (for checking), default, or high")
      ->check(CLI::IsMember({"f32", "default", "high"}))
      ->capture_default_str();
  command
      .add_option(
          "--kv-dtype", flags.kv_dtype,
          "Numbers in the KV cache: f32, bf16, int8, or auto: bf16 at the default precision")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  command
      .add_option("--device", flags.device,
                  "What computes: cpu, cuda, cuda:1 (the second GPU), or auto: a GPU where one can "
                  "do what is asked. In f32 results do not depend on it")
      ->default_str("auto");
  flags.device = "auto";
  command
      .add_option("--cpu-isa", flags.isa,
                  "Instructions to use; the best there are if absent. Results do not depend on it")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512", "amx"}));
  command
      .add_option(
          "--threads", flags.threads,
          "Threads that compute; one per usable core if absent. Results do not depend on it")
      ->check(CLI::Range(1U, 1024U));
  command
      .add_option("--max-context", flags.max_context,
                  "Tokens of prompt and answer together; what the model was made for if absent")
      ->check(CLI::Range(2U, 1U << 24));
}

ModelOptions model_options(const ModelFlags& flags) {
  ModelOptions options;
  options.precision = precision_of(flags);
  options.kv_type = kv_type_of(flags);
  options.device = flags.device;
  if (!flags.isa.empty()) options.isa = flags.isa;
  options.max_context = flags.max_context;
  options.vectors = vector_kind(flags.pooling);
  options.formats = {flags.tool_format, flags.reasoning_format};
  options.sampling.openai = flags.sampling_defaults == "openai";
  return options;
}

std::unique_ptr<ComputePool> make_pool(const ModelFlags& flags) {
  return std::make_unique<ComputePool>(flags.threads == 0 ? usable_cpus() : flags.threads);
}

Result<std::unique_ptr<LoadedModel>> load_model(
    const ModelFlags& flags, const DecoderLimits& limits, ComputePool& pool,
    decltype(ModelOptions::backend_maker) backend_maker) {
  SKEIN_ASSIGN(const std::string path, model_path(flags.model));
  ModelOptions options = model_options(flags);
  options.backend_maker = std::move(backend_maker);
  options.limits = limits;
  LoadShare share;
  LoadProgress progress({flags.model}, share);
  options.report = [&](uint64_t done, uint64_t all) {
    share.report(done, all);
    progress.draw();
  };
  SKEIN_ASSIGN(auto model, LoadedModel::load(path, options, pool));
  if (model->spec().encoder) {
    return unimplemented(
        "{}: an encoder writes no text; serve it, and /v1/embeddings or /v1/rerank give its "
        "vectors",
        path);
  }
  return model;
}

void add_speculation_option(CLI::App& command, std::string& word) {
  command
      .add_option(
          "--speculation", word,
          "Guess tokens from the text so far and check several at once: off, ngram or auto, "
          "which is ngram on the CPU and off on a GPU. It changes no token")
      ->check(CLI::IsMember({"off", "ngram", "auto"}))
      ->capture_default_str();
}

bool speculates(const std::string& word, const LoadedModel& model) {
  return word == "ngram" || (word == "auto" && model.device() == nullptr);
}

void add_sampling_options(CLI::App& command, SamplingFlags& flags, ModelFlags& model) {
  const std::string group = "Sampling (if absent, what `skein inspect` shows)";
  const auto add = [&](const char* name, auto& value, const char* what) {
    return command.add_option(name, value, what)->group(group);
  };
  add("--temperature", flags.temperature, "0: always the likeliest token; up to 100");
  add("--top-k", flags.top_k, "Draw from that many likeliest tokens; 0: off");
  add("--top-p", flags.top_p, "Draw from the likeliest tokens that make up this share");
  add("--min-p", flags.min_p, "Leave out what is less likely than this times the likeliest");
  add("--typical-p", flags.typical_p, "Draw from the most typical tokens of this share");
  add("--repetition-penalty", flags.repetition_penalty,
      "Above 1: tokens of prompt and answer become less likely; 0.01 to 100");
  add("--presence-penalty", flags.presence_penalty, "Taken off the logits of the answer's tokens");
  add("--frequency-penalty", flags.frequency_penalty, "The same, for each time they occurred");
  add("--logit-bias", flags.logit_bias, "ID=BIAS: added to a token's logit; repeatable")
      ->allow_extra_args(false);
  add("--allowed-token-ids", flags.allowed_token_ids, "Draw from these tokens alone: 5,17,3")
      ->delimiter(',');
  add("--banned-token-ids", flags.banned_token_ids, "Never draw these tokens: 5,17,3")
      ->delimiter(',');
  add("--stop-token-ids", flags.stop_token_ids, "These tokens end the answer too: 5,17,3")
      ->delimiter(',');
  add("--min-tokens", flags.min_tokens, "No stop token before that many");
  command.add_flag("--ignore-eos", flags.ignore_eos, "Stop tokens do not end the answer")
      ->group(group);
  add("--sampling-defaults", model.sampling_defaults,
      "auto, or openai: temperature 1 and nothing else where no value is given")
      ->check(CLI::IsMember({"auto", "openai"}))
      ->capture_default_str();
  add("--seed", flags.seed, "Same seed, same text; drawn at random if absent");
}

Result<SamplingParams> apply(const SamplingFlags& flags, SamplingParams defaults) {
  SamplingParams params = std::move(defaults);
  set(flags.temperature, params.temperature);
  set(flags.top_k, params.top_k);
  set(flags.top_p, params.top_p);
  set(flags.min_p, params.min_p);
  set(flags.typical_p, params.typical_p);
  set(flags.repetition_penalty, params.repetition_penalty);
  set(flags.presence_penalty, params.presence_penalty);
  set(flags.frequency_penalty, params.frequency_penalty);
  for (const std::string& text : flags.logit_bias) {
    SKEIN_ASSIGN(const auto bias, parse_bias(text));
    params.logit_bias.push_back(bias);
  }
  append(flags.allowed_token_ids, params.allowed);
  append(flags.banned_token_ids, params.banned);
  append(flags.stop_token_ids, params.stop_ids);
  params.min_tokens = flags.min_tokens;
  params.ignore_eos = flags.ignore_eos;
  params.seed = flags.seed ? *flags.seed : random_seed();
  SKEIN_TRY(params.validate(INT32_MAX));
  return params;
}

}  // namespace skein::apps
