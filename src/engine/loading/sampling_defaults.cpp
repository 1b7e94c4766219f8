#include "engine/loading/sampling_defaults.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

namespace skein {
namespace {

struct Field {
  std::string_view name;  // in generation_config.json
  std::string_view gguf;
  bool draws;  // says which tokens can be drawn
  void (*set)(SamplingParams& params, double value);
};

uint32_t count_of(double value) {
  return value > 0 && value < UINT32_MAX ? static_cast<uint32_t>(value) : 0;  // -1 is off too
}

constexpr Field kFields[] = {
    {"temperature", "general.sampling.temp", true,
     [](SamplingParams& p, double v) { p.temperature = static_cast<float>(v); }},
    {"top_k", "general.sampling.top_k", true,
     [](SamplingParams& p, double v) { p.top_k = count_of(v); }},
    {"top_p", "general.sampling.top_p", true,
     [](SamplingParams& p, double v) { p.top_p = static_cast<float>(v); }},
    {"min_p", "general.sampling.min_p", true,
     [](SamplingParams& p, double v) { p.min_p = static_cast<float>(v); }},
    {"typical_p", "general.sampling.typ_p", true,
     [](SamplingParams& p, double v) { p.typical_p = static_cast<float>(v); }},
    {"repetition_penalty", "general.sampling.penalty_repeat", false,
     [](SamplingParams& p, double v) { p.repetition_penalty = static_cast<float>(v); }},
};

// What authors recommend on a model's page and its files do not repeat.
struct KnownModel {
  std::string_view organization;  // general.organization
  std::string_view basename;      // general.basename, of all sizes
  float temperature;
  float top_p;
};
constexpr KnownModel kKnownModels[] = {
    {"HuggingFaceTB", "smollm2", 0.2F, 0.9F},
};

constexpr float kGeneralTemperature = 0.7F;
constexpr float kGeneralTopP = 0.95F;
constexpr float kGeneralMinP = 0.05F;

// nullopt when the files do not say; NaN when what they say is no number.
std::optional<double> value_of(const WeightSource& source, const Field& field) {
  if (source.kind() == SourceKind::kGguf) {
    const gguf::Metadata& metadata = source.metadata();
    if (!metadata.has(field.gguf)) return std::nullopt;
    if (const auto real = metadata.get<double>(field.gguf); real.ok()) return *real;
    const auto whole = metadata.get<int64_t>(field.gguf);
    return whole.ok() ? static_cast<double>(*whole) : std::nan("");
  }
  const Json& config = source.documents().generation_config;
  if (!config.is_object()) return std::nullopt;
  const auto found = config.find(field.name);
  if (found == config.end() || found->is_null()) return std::nullopt;
  return found->is_number() ? found->get<double>() : std::nan("");
}

// Leaves `params` as they were where the value makes no sense.
Status set_field(const Field& field, double value, SamplingParams& params) {
  if (std::isnan(value)) return invalid_argument("{} is no number", field.name);
  SamplingParams changed = params;
  field.set(changed, value);
  SKEIN_TRY(changed.validate(UINT32_MAX));
  params = std::move(changed);
  return {};
}

// Whether the files say how tokens are drawn.
bool read_files(const WeightSource& source, SamplingDefaults& defaults) {
  bool draws = false;
  for (const Field& field : kFields) {
    const std::optional<double> value = value_of(source, field);
    if (!value) continue;
    const Status status = set_field(field, *value, defaults.params);
    if (status.ok()) {
      draws = draws || field.draws;
    } else {
      defaults.ignored.push_back(status.message());
    }
  }
  return draws;
}

// nullptr: its authors are not known to recommend anything. A base model, which has no template, is
// not meant by what is recommended for talking.
const KnownModel* find_known(const WeightSource& source) {
  if (source.kind() != SourceKind::kGguf) return nullptr;
  const auto chat_template = source.chat_template();
  if (!chat_template.ok() || !*chat_template) return nullptr;
  const auto text_of = [&](std::string_view key) {
    const auto text = source.metadata().get_or<std::string_view>(key, "");
    return text.ok() ? *text : std::string_view();
  };
  const std::string_view organization = text_of("general.organization");
  const std::string_view basename = text_of("general.basename");
  for (const KnownModel& known : kKnownModels) {
    if (known.organization == organization && known.basename == basename) return &known;
  }
  return nullptr;
}

void recommend(const WeightSource& source, SamplingDefaults& defaults) {
  defaults.source = SamplingSource::kFiles;
  if (read_files(source, defaults)) return;
  SamplingParams& params = defaults.params;
  if (const KnownModel* known = find_known(source)) {
    defaults.source = SamplingSource::kAuthors;
    params.temperature = known->temperature;
    params.top_p = known->top_p;
  } else {
    defaults.source = SamplingSource::kGeneral;
    params.temperature = kGeneralTemperature;
    params.top_p = kGeneralTopP;
    params.min_p = kGeneralMinP;
  }
}

const Field* find_field(std::string_view name) {
  const auto* const end = std::end(kFields);
  const auto* const field =
      std::find_if(std::begin(kFields), end, [&](const Field& one) { return one.name == name; });
  return field == end ? nullptr : field;
}

}  // namespace

std::string_view name_of(SamplingSource source) {
  switch (source) {
    case SamplingSource::kFiles:
      return "files";
    case SamplingSource::kAuthors:
      return "authors";
    case SamplingSource::kGeneral:
      return "general";
    case SamplingSource::kOpenAi:
      return "openai";
    case SamplingSource::kOperator:
      return "operator";
  }
  return "";
}

Result<std::vector<SamplingValue>> parse_sampling_values(std::string_view text) {
  std::vector<SamplingValue> values;
  SamplingParams params;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const size_t equals = std::min(word.find('='), word.size());
    const Field* const field = find_field(word.substr(0, equals));
    const std::string_view digits = word.substr(std::min(equals + 1, word.size()));
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (field == nullptr || error != std::errc() || end != digits.data() + digits.size()) {
      return invalid_argument(
          "'{}': it must be temperature=, top_k=, top_p=, min_p=, typical_p= or "
          "repetition_penalty= with a number",
          word);
    }
    SKEIN_TRY(set_field(*field, value, params));
    values.push_back({std::string(field->name), value});
  }
  return values;
}

SamplingDefaults find_sampling_defaults(const WeightSource& source, const SamplingWishes& wishes) {
  SamplingDefaults defaults;
  if (wishes.openai) {
    defaults.source = SamplingSource::kOpenAi;
  } else {
    recommend(source, defaults);
  }
  for (const SamplingValue& wish : wishes.values) {
    const Field* const field = find_field(wish.name);
    if (field != nullptr && set_field(*field, wish.value, defaults.params).ok()) {
      defaults.source = SamplingSource::kOperator;
    }
  }
  return defaults;
}

}  // namespace skein
