#include "server/api/generation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/stop_matcher.h"

namespace skein::api {
namespace {

constexpr double kMaxTimeoutSeconds = 86'400;

std::optional<float> as_float(std::optional<double> number) {
  if (!number) return std::nullopt;
  return static_cast<float>(*number);
}

// {"1234": -100, ...}: keys are token ids.
void read_logit_bias(const Fields& fields, SamplingParams& sampling) {
  const json::Value* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMaxLogitBias) {
    return fields.fail("logit_bias", fmt::format("{} entries are given; at most {} are allowed.",
                                                 biases->size(), kMaxLogitBias));
  }
  for (const auto& [key, value] : biases->items()) {
    TokenId id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (key.empty() || parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() ||
        id < 0) {
      return fields.fail("logit_bias", "Its keys must be token ids.");
    }
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(bias >= -100 && bias <= 100)) {
      return fields.fail("logit_bias", "Its values must be numbers from -100 to 100.");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

void read_penalties(const Fields& fields, Generation& generation) {
  SamplingParams& sampling = generation.sampling;
  sampling.presence_penalty =
      static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  sampling.frequency_penalty =
      static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  // kMinRepetitionPenalty, written so that the message shows it as a person would.
  generation.repetition_penalty =
      as_float(fields.number("repetition_penalty", 0.01, kMaxRepetitionPenalty));
}

void read_sampling(const Fields& fields, Generation& generation) {
  SamplingParams& sampling = generation.sampling;
  generation.temperature = as_float(fields.number("temperature", 0, 5));
  generation.top_p = as_float(fields.number("top_p", 0, 1));
  generation.min_p = as_float(fields.number("min_p", 0, 1));
  if (const auto top_k = fields.integer("top_k", -1, INT32_MAX)) {
    generation.top_k = static_cast<uint32_t>(std::max<int64_t>(0, *top_k));
  }
  if (const auto typical = fields.number("typical_p", 0, 1)) {
    sampling.typical_p = static_cast<float>(*typical);
    if (sampling.typical_p <= 0) fields.fail("typical_p", "A number above 0 is expected here.");
  }
  read_penalties(fields, generation);
  read_logit_bias(fields, sampling);
  sampling.min_tokens =
      static_cast<uint32_t>(fields.integer("min_tokens", 0, INT32_MAX).value_or(0));
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling.stop_ids = fields.token_ids("stop_token_ids", kMaxStopIds);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    generation.seed = static_cast<uint64_t>(*seed);
  }
}

void read_stream_options(const Fields& fields, Generation& generation) {
  generation.stream = fields.boolean("stream").value_or(false);
  const json::Value* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!generation.stream) {
    return fields.fail("stream_options", "This field needs stream to be true.");
  }
  const Fields inner(*options, fields.path_of("stream_options"), fields.problem());
  generation.include_usage = inner.boolean("include_usage").value_or(false);
  generation.continuous_usage =
      generation.include_usage && inner.boolean("continuous_usage_stats").value_or(false);
}

}  // namespace

std::optional<uint32_t> read_max_tokens(const Fields& fields, std::string_view name) {
  const auto tokens = fields.integer(name, 1, INT32_MAX);
  if (!tokens) return std::nullopt;
  return static_cast<uint32_t>(*tokens);
}

std::vector<std::string> read_stops(const Fields& fields, std::string_view name) {
  std::vector<std::string> stops;
  const auto take = [&](const json::Value& value, const std::string& path) {
    const size_t bytes = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
    if (bytes > 0 && bytes <= kMaxStopBytes) {
      stops.push_back(value.get<std::string>());
    } else if (!fields.problem()) {
      fields.problem() = invalid_field(
          path, bytes > 0
                    ? fmt::format("A stop text of {} bytes is given; at most {} are allowed.",
                                  bytes, kMaxStopBytes)
                    : fmt::format("A string of 1 to {} bytes is expected here.", kMaxStopBytes));
    }
  };
  const json::Value* value = fields.find(name);
  if (value == nullptr) return stops;
  if (value->is_string()) {
    if (!value->get_ref<const std::string&>().empty()) take(*value, fields.path_of(name));
  } else {
    fields.for_each(name, kMaxStops, take);
  }
  return stops;
}

void read_generation(const Fields& fields, Generation& generation) {
  generation.model = fields.string("model", kMaxNameBytes).value_or("");
  fields.string("user", kMaxNameBytes);
  generation.n = static_cast<uint32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  generation.stop = read_stops(fields, "stop");
  read_sampling(fields, generation);
  read_stream_options(fields, generation);
  generation.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  generation.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  generation.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  generation.return_progress = fields.boolean("return_progress").value_or(false);
  if (const auto seconds = fields.number("timeout", 0, kMaxTimeoutSeconds)) {
    generation.timeout_us = static_cast<TimeUs>(*seconds * kUsPerSecond);
    if (*generation.timeout_us == 0) fields.fail("timeout", "A number above 0 is expected here.");
  }
}

SamplingParams Generation::sampling_params(const SamplingParams& defaults,
                                           uint64_t drawn_seed) const {
  SamplingParams params = sampling;
  params.temperature = temperature.value_or(defaults.temperature);
  // 0 asks for the likeliest token alone, which any share above 0 does.
  params.top_p = std::max(top_p.value_or(defaults.top_p), std::numeric_limits<float>::min());
  params.top_k = top_k.value_or(defaults.top_k);
  params.min_p = min_p.value_or(defaults.min_p);
  params.repetition_penalty = repetition_penalty.value_or(defaults.repetition_penalty);
  params.seed = seed.value_or(drawn_seed);
  params.stop_ids.insert(params.stop_ids.end(), defaults.stop_ids.begin(), defaults.stop_ids.end());
  std::sort(params.stop_ids.begin(), params.stop_ids.end());
  params.stop_ids.erase(std::unique(params.stop_ids.begin(), params.stop_ids.end()),
                        params.stop_ids.end());
  return params;
}

}  // namespace skein::api
