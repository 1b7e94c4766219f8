#include "server/api/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/text_assembler.h"

namespace skein::api {

Parsed<json::Value> parse_body(std::string_view body) {
  auto parsed = json::parse(body);
  if (const auto* error = std::get_if<json::ParseError>(&parsed)) {
    return invalid_json(error->offset, error->reason);
  }
  json::Value value = std::get<json::Value>(std::move(parsed));
  if (!value.is_object()) return invalid_field("", "The body must be a JSON object.");
  return value;
}

std::optional<int64_t> whole_number(const json::Value& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips numbers
  if (std::trunc(number) != number || std::abs(number) > kExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::vector<int32_t> read_token_ids(const json::Value& list, const std::string& path,
                                    Problem& problem) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size() && !problem; ++i) {
    const auto id = whole_number(list[i]);
    if (!id || *id < 0 || *id > INT32_MAX) {
      problem = invalid_field(fmt::format("{}[{}]", path, i), "A token id is expected here.");
      break;
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Fields::Fields(const json::Value& object, std::string path, Problem& problem)
    : object_(object), path_(std::move(path)), problem_(problem) {
  if (!object_.is_object() && !problem_) {
    problem_ = invalid_field(path_, "An object is expected here.");
  }
}

const json::Value* Fields::find(std::string_view name) const {
  if (problem_) return nullptr;
  for (const auto& [key, value] : object_.get_ref<const json::Value::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(std::string_view name, std::string message) const {
  if (!problem_) problem_ = invalid_field(path_of(name), std::move(message));
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "true or false is expected here.");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = whole_number(*value);
  if (number && *number >= low && *number <= high) return number;
  fail(name, fmt::format("A whole number from {} to {} is expected here.", low, high));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    if (const auto number = value->get<double>(); number >= low && number <= high) return number;
  }
  fail(name, fmt::format("A number from {} to {} is expected here.", low, high));
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name, size_t max_bytes) const {
  const json::Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "A string is expected here.");
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= max_bytes) return text;
  fail(name,
       fmt::format("The string has {} bytes; at most {} are allowed.", text.size(), max_bytes));
  return std::nullopt;
}

std::string Fields::required_string(std::string_view name, size_t max_bytes) const {
  if (!has(name)) missing(name);
  return string(name, max_bytes).value_or("");
}

std::optional<size_t> Fields::choice(std::string_view name,
                                     std::initializer_list<std::string_view> words) const {
  const auto text = string(name);
  if (!text) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list.append(", ");
    list.append(word);
  }
  fail(name, fmt::format("One of these is expected here: {}.", list));
  return std::nullopt;
}

const json::Value* Fields::object(std::string_view name) const {
  const json::Value* value = find(name);
  if (value != nullptr && !value->is_object()) {
    fail(name, "An object is expected here.");
    return nullptr;
  }
  return value;
}

const json::Value* Fields::array(std::string_view name, size_t max_items) const {
  const json::Value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail(name, "A list is expected here.");
    return nullptr;
  }
  if (value->size() <= max_items) return value;
  fail(name,
       fmt::format("The list has {} items; at most {} are allowed.", value->size(), max_items));
  return nullptr;
}

void Fields::for_each(
    std::string_view name, size_t max_items,
    const std::function<void(const json::Value&, const std::string&)>& take) const {
  const json::Value* list = array(name, max_items);
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size() && !problem_; ++i) {
    take((*list)[i], fmt::format("{}[{}]", path_of(name), i));
  }
}

std::vector<int32_t> Fields::token_ids(std::string_view name, size_t max_items) const {
  const json::Value* list = array(name, max_items);
  if (list == nullptr) return {};
  return read_token_ids(*list, path_of(name), problem_);
}

// ---- what all endpoints that generate text take ----

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

// [1234, ...]: no other token may be drawn, the stop tokens among them.
void read_allowed(const Fields& fields, SamplingParams& sampling) {
  sampling.allowed = fields.token_ids("allowed_token_ids", kMaxAllowedIds);
  if (sampling.allowed.empty() && fields.has("allowed_token_ids")) {
    fields.fail("allowed_token_ids", "At least one token's id is expected here.");
  }
  // Here nobody else waits for it.
  std::sort(sampling.allowed.begin(), sampling.allowed.end());
}

void read_penalties(const Fields& fields, AnswerOptions& options) {
  SamplingParams& sampling = options.sampling;
  sampling.presence_penalty =
      static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  sampling.frequency_penalty =
      static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  // kMinRepetitionPenalty, written so that the message shows it as a person would.
  options.repetition_penalty =
      as_float(fields.number("repetition_penalty", 0.01, kMaxRepetitionPenalty));
}

void read_sampling(const Fields& fields, AnswerOptions& options) {
  SamplingParams& sampling = options.sampling;
  options.temperature = as_float(fields.number("temperature", 0, 5));
  options.top_p = as_float(fields.number("top_p", 0, 1));
  options.min_p = as_float(fields.number("min_p", 0, 1));
  if (const auto top_k = fields.integer("top_k", -1, INT32_MAX)) {
    options.top_k = static_cast<uint32_t>(std::max<int64_t>(0, *top_k));
  }
  options.typical_p = as_float(fields.number("typical_p", 0, 1));
  if (options.typical_p && *options.typical_p <= 0) {
    fields.fail("typical_p", "A number above 0 is expected here.");
  }
  read_penalties(fields, options);
  read_logit_bias(fields, sampling);
  read_allowed(fields, sampling);
  sampling.min_tokens =
      static_cast<uint32_t>(fields.integer("min_tokens", 0, INT32_MAX).value_or(0));
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling.stop_ids = fields.token_ids("stop_token_ids", kMaxStopIds);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    options.seed = static_cast<uint64_t>(*seed);
  }
}

void read_stream_options(const Fields& fields, AnswerOptions& options) {
  options.stream = fields.boolean("stream").value_or(false);
  const json::Value* given = fields.object("stream_options");
  if (given == nullptr) return;
  if (!options.stream) {
    return fields.fail("stream_options", "This field needs stream to be true.");
  }
  const Fields inner(*given, fields.path_of("stream_options"), fields.problem());
  options.include_usage = inner.boolean("include_usage").value_or(false);
  options.continuous_usage =
      options.include_usage && inner.boolean("continuous_usage_stats").value_or(false);
}

}  // namespace

std::optional<uint32_t> read_max_tokens(const Fields& fields, std::string_view name) {
  const auto tokens = fields.integer(name, 1, INT32_MAX);
  if (!tokens) return std::nullopt;
  return static_cast<uint32_t>(*tokens);
}

const json::Value* read_metadata(const Fields& fields) {
  constexpr size_t kMaxMetadata = 16;
  constexpr size_t kMaxMetadataValue = 512;
  const json::Value* metadata = fields.object("metadata");
  if (metadata == nullptr) return nullptr;
  bool fits = metadata->size() <= kMaxMetadata;
  for (const auto& [name, value] : metadata->items()) {
    fits = fits && name.size() <= kMaxMetadataValue && value.is_string() &&
           value.get_ref<const std::string&>().size() <= kMaxMetadataValue;
  }
  if (fits) return metadata;
  fields.fail("metadata", fmt::format("At most {} strings of at most {} bytes are expected.",
                                      kMaxMetadata, kMaxMetadataValue));
  return nullptr;
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

void read_answer_options(const Fields& fields, AnswerOptions& options) {
  options.model = fields.string("model", kMaxNameBytes).value_or("");
  fields.string("user", kMaxNameBytes);
  options.n = static_cast<uint32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  options.stop = read_stops(fields, "stop");
  read_sampling(fields, options);
  read_stream_options(fields, options);
  options.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  options.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  options.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  options.return_progress = fields.boolean("return_progress").value_or(false);
  options.timeout_us = read_timeout(fields);
  if (const auto speculation = fields.string("speculation", kMaxNameBytes)) {
    options.speculation = speculation_of(*speculation);
    if (!options.speculation) {
      fields.fail("speculation", "It must be 'off', 'ngram' or 'auto'.");
    }
  }
}

std::optional<TimeUs> read_timeout(const Fields& fields) {
  const auto seconds = fields.number("timeout", 0, kMaxTimeoutSeconds);
  if (!seconds) return std::nullopt;
  const auto timeout_us = static_cast<TimeUs>(*seconds * kUsPerSecond);
  if (timeout_us == 0) fields.fail("timeout", "A number above 0 is expected here.");
  return timeout_us;
}

SamplingParams AnswerOptions::sampling_params(const SamplingParams& defaults,
                                              uint64_t drawn_seed) const {
  SamplingParams params = sampling;
  params.temperature = temperature.value_or(defaults.temperature);
  // 0 asks for the likeliest token alone, which any share above 0 does.
  params.top_p = std::max(top_p.value_or(defaults.top_p), std::numeric_limits<float>::min());
  params.top_k = top_k.value_or(defaults.top_k);
  params.min_p = min_p.value_or(defaults.min_p);
  params.typical_p = typical_p.value_or(defaults.typical_p);
  params.repetition_penalty = repetition_penalty.value_or(defaults.repetition_penalty);
  params.seed = seed.value_or(drawn_seed);
  params.stop_ids.insert(params.stop_ids.end(), defaults.stop_ids.begin(), defaults.stop_ids.end());
  std::sort(params.stop_ids.begin(), params.stop_ids.end());
  params.stop_ids.erase(std::unique(params.stop_ids.begin(), params.stop_ids.end()),
                        params.stop_ids.end());
  return params;
}

}  // namespace skein::api
