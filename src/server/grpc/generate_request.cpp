#include "server/grpc/generate_request.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/form_fields.h"
#include "server/kv_events/tenant_names.h"
#include "server/store/random.h"
#include "text/text_assembler.h"

namespace skein::rpc {
namespace {

using api::Problem;
using ::vllm::DecodingParameters;
using ::vllm::GenerateRequest;

// Of a router that tells its own tenants from other strings.
constexpr std::string_view kTenantTag = "dynamo-cache-salt:";
constexpr std::string_view kPurpose = "grpc:";

constexpr size_t kMaxAllowed = 1 << 20;  // ids; a vocabulary is smaller

Problem unsupported(std::string_view what, std::string_view field) {
  return api::not_supported(what, std::string(field));
}

// False, and says so, where one of them is no id of any vocabulary.
template <class Ids>
bool take_ids(const Ids& from, std::string_view field, size_t limit, std::vector<TokenId>& to,
              Problem& problem) {
  if (static_cast<size_t>(from.size()) > limit) {
    problem = api::invalid_field(std::string(field),
                                 fmt::format("It has {} ids; {} are allowed.", from.size(), limit));
    return false;
  }
  to.reserve(static_cast<size_t>(from.size()));
  for (const uint32_t id : from) {
    if (id > INT32_MAX) {
      problem = api::invalid_field(
          std::string(field), fmt::format("{} is no token's id: they end at {}.", id, INT32_MAX));
      return false;
    }
    to.push_back(static_cast<TokenId>(id));
  }
  return true;
}

Problem find_refused(const GenerateRequest& message) {
  if (message.sampling().num_sequences() > 1)
    return unsupported("More than one answer", "sampling.num_sequences");
  if (message.media_size() > 0) return unsupported("Media", "media");
  if (!message.lora_name().empty()) return unsupported("An adapter", "lora_name");
  if (!message.native_sampling_params_json().empty()) {
    return unsupported("Sampling as JSON", "native_sampling_params_json");
  }
  if (message.kv().has_kv_transfer_params())
    return unsupported("A transfer of KV", "kv.kv_transfer_params");
  if (message.kv().has_ec_transfer_params())
    return unsupported("A transfer of encodings", "kv.ec_transfer_params");
  if (message.response().prompt_logprobs() || message.response().has_prompt_candidates()) {
    return unsupported("Logprobs of the prompt", "response.prompt_logprobs");
  }
  if (message.kv().cache_salt().size() > TenantNames::kMaxBytes) {
    return api::invalid_field(
        "kv.cache_salt", fmt::format("It has {} bytes; {} are allowed.",
                                     message.kv().cache_salt().size(), TenantNames::kMaxBytes));
  }
  if (message.model().size() > api::kMaxNameBytes) return api::model_not_found("");
  return std::nullopt;
}

Problem read_prompt(GenerateRequest& message, api::CompletionRequest& request) {
  const uint32_t last = message.truncate_prompt_tokens();
  if (message.has_text()) {
    if (last > 0) return unsupported("Cutting a text", "truncate_prompt_tokens");
    request.prompts.emplace_back(std::move(*message.mutable_text()));
    return std::nullopt;
  }
  std::vector<TokenId> ids;
  Problem problem;
  if (!take_ids(message.token_ids().ids(), "token_ids", SIZE_MAX, ids, problem)) return problem;
  if (ids.empty()) return api::invalid_field("prompt", "A prompt of one token at least is needed.");
  if (last > 0 && ids.size() > last) ids.erase(ids.begin(), ids.end() - last);
  request.prompts.emplace_back(std::move(ids));
  return std::nullopt;
}

// In vLLM's words 0 is the default.
template <class T>
std::optional<T> unless_zero(T value) {
  return value == 0 ? std::nullopt : std::optional<T>(value);
}

Problem read_sampling(const GenerateRequest& message, api::AnswerOptions& options) {
  const auto& sampling = message.sampling();
  const DecodingParameters& decoding = message.decoding();
  if (message.has_temperature()) options.temperature = message.temperature();
  options.top_k = unless_zero(sampling.top_k());
  options.top_p = unless_zero(sampling.top_p());
  options.min_p = unless_zero(sampling.min_p());
  if (sampling.has_seed()) options.seed = static_cast<uint64_t>(sampling.seed());
  options.repetition_penalty = unless_zero(decoding.repetition_penalty());
  options.sampling.presence_penalty = decoding.presence_penalty();
  options.sampling.frequency_penalty = decoding.frequency_penalty();
  if (static_cast<size_t>(decoding.logit_bias_size()) > api::kMaxLogitBias) {
    return api::invalid_field("decoding.logit_bias",
                              fmt::format("It has {} entries; {} are allowed.",
                                          decoding.logit_bias_size(), api::kMaxLogitBias));
  }
  // A map comes in any order, and the same request is the same answer, also where it is refused.
  std::vector<std::pair<uint32_t, float>> biases(decoding.logit_bias().begin(),
                                                 decoding.logit_bias().end());
  std::sort(biases.begin(), biases.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, bias] : biases) {
    if (id > INT32_MAX) {
      return api::invalid_field("decoding.logit_bias", fmt::format("{} is no token's id.", id));
    }
    options.sampling.logit_bias.emplace_back(static_cast<TokenId>(id), bias);
  }
  Problem problem;
  take_ids(decoding.allowed_token_ids(), "decoding.allowed_token_ids", kMaxAllowed,
           options.sampling.allowed, problem);
  // Here nobody else waits while that takes long.
  std::sort(options.sampling.allowed.begin(), options.sampling.allowed.end());
  return problem;
}

Problem read_form(DecodingParameters& decoding, api::AnswerOptions& options) {
  using Kind = FormSpec::Kind;
  const auto ask = [&options](const char* field, FormSpec spec) {
    options.form = api::AskedForm{std::move(spec), field};
    return Problem();
  };
  switch (decoding.structured_output_case()) {
    case DecodingParameters::kJson:
      return ask("decoding.json", {Kind::kJsonSchema, std::move(*decoding.mutable_json())});
    case DecodingParameters::kRegex:
      return ask("decoding.regex", {Kind::kRegex, std::move(*decoding.mutable_regex())});
    case DecodingParameters::kGrammar:
      return ask("decoding.grammar", api::grammar_form(std::move(*decoding.mutable_grammar())));
    case DecodingParameters::kJsonObject:
      if (!decoding.json_object()) return std::nullopt;
      return ask("decoding.json_object", {.kind = Kind::kJsonObject});
    case DecodingParameters::kStructuralTag:
      return unsupported("A structural tag", "decoding.structural_tag");
    case DecodingParameters::kChoice:
      break;
    case DecodingParameters::STRUCTURED_OUTPUT_NOT_SET:
      return std::nullopt;
  }
  auto& texts = *decoding.mutable_choice()->mutable_choices();
  const auto count = static_cast<size_t>(texts.size());
  if (count == 0 || count > api::kMaxFormChoices) {
    return api::invalid_field(
        "decoding.choice",
        fmt::format("It has {} texts; 1 to {} are allowed.", count, api::kMaxFormChoices));
  }
  FormSpec spec{.kind = Kind::kChoice};
  for (std::string& text : texts) spec.choices.push_back(std::move(text));
  return ask("decoding.choice", std::move(spec));
}

// How far a context goes is the model's business where nothing is said: a chat through a router
// that names no limit is not to end after twenty tokens.
Problem read_stopping(::vllm::StoppingCriteria& stopping, api::AnswerOptions& options) {
  options.max_tokens = unless_zero(stopping.max_new_tokens());
  options.sampling.min_tokens = stopping.min_new_tokens();
  if (options.max_tokens && stopping.min_new_tokens() > *options.max_tokens) {
    return api::invalid_field("stopping.min_new_tokens",
                              fmt::format("It is {}, more than the {} of max_new_tokens.",
                                          stopping.min_new_tokens(), *options.max_tokens));
  }
  const auto stops = static_cast<size_t>(stopping.stop_strings_size());
  if (stops > kMaxStops) {
    return api::invalid_field("stopping.stop_strings",
                              fmt::format("It has {} texts; {} are allowed.", stops, kMaxStops));
  }
  for (std::string& text : *stopping.mutable_stop_strings()) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      return api::invalid_field(
          "stopping.stop_strings",
          fmt::format("A text has {} bytes; 1 to {} are allowed.", text.size(), kMaxStopBytes));
    }
    options.stop.push_back(std::move(text));
  }
  options.pieces.stop_text = stopping.include_stop_strings();
  options.sampling.ignore_eos = stopping.ignore_eos();
  Problem problem;
  take_ids(stopping.stop_token_ids(), "stopping.stop_token_ids", api::kMaxStopIds,
           options.sampling.stop_ids, problem);
  return problem;
}

Problem read_response(const ::vllm::ResponseOptions& response, api::AnswerOptions& options) {
  options.pieces.text = !response.has_output_text() || response.output_text();
  options.pieces.prompt_ids = response.prompt_token_ids();
  options.return_token_ids = response.output_token_ids();
  options.skip_special_tokens =
      !response.has_skip_special_tokens() || response.skip_special_tokens();
  options.sampling.logprobs = response.output_logprobs();
  if (!response.has_output_candidates()) return std::nullopt;
  const auto& candidates = response.output_candidates();
  if (candidates.select_case() == ::vllm::CandidateTokens::SELECT_NOT_SET) return std::nullopt;
  if (candidates.select_case() != ::vllm::CandidateTokens::kTopN) {
    return unsupported("Candidates other than the likeliest", "response.output_candidates");
  }
  if (candidates.top_n() > kMaxTopLogprobs) {
    return api::invalid_field(
        "response.output_candidates",
        fmt::format("top_n is {}; 0 to {} are allowed.", candidates.top_n(), kMaxTopLogprobs));
  }
  options.sampling.logprobs = true;
  options.sampling.top_logprobs = candidates.top_n();
  return std::nullopt;
}

}  // namespace

api::Parsed<Generate> read_generate(GenerateRequest& message, bool stream) {
  Generate generate;
  api::AnswerOptions& options = generate.request.options;
  options.model = message.model();
  options.stream = stream;
  options.goes_on = true;
  generate.terms = {.cache_salt = message.kv().cache_salt(),
                    .bypasses_cache = message.kv().bypass_prefix_cache(),
                    .priority = class_of(message.priority())};
  if (auto problem = find_refused(message)) return *problem;
  if (auto problem = read_prompt(message, generate.request)) return *problem;
  if (auto problem = read_sampling(message, options)) return *problem;
  if (auto problem = read_form(*message.mutable_decoding(), options)) return *problem;
  if (auto problem = read_stopping(*message.mutable_stopping(), options)) return *problem;
  if (auto problem = read_response(message.response(), options)) return *problem;
  return generate;
}

std::shared_ptr<const Principal> principal_of(const GenerateTerms& terms, const KeyRing& keys,
                                              const HashKey& salt_key) {
  Principal who;
  who.name = "grpc";
  std::string_view tenant = terms.cache_salt;
  if (tenant.starts_with(kTenantTag)) tenant.remove_prefix(kTenantTag.size());
  if (!tenant.empty()) {
    if (const auto key = keys.find(std::string(tenant))) who = *key;
  }
  who.requests_per_minute = 0;
  who.admin = false;
  const std::string text = std::string(kPurpose).append(terms.cache_salt);
  who.salt = keyed_hash(salt_key, std::as_bytes(std::span(text)));
  // What nobody else will ask for.
  if (terms.bypasses_cache) fill_random(std::as_writable_bytes(std::span(&who.salt, 1)));
  return std::make_shared<const Principal>(std::move(who));
}

}  // namespace skein::rpc
