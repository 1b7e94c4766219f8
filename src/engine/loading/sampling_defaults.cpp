#include "engine/loading/sampling_defaults.h"

#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace skein {
namespace {

struct Field {
  std::string_view name;  // in generation_config.json
  std::string_view gguf;
  void (*set)(SamplingParams& params, double value);
};

uint32_t count_of(double value) {
  return value > 0 && value < UINT32_MAX ? static_cast<uint32_t>(value) : 0;  // -1 is off too
}

constexpr Field kFields[] = {
    {"temperature", "general.sampling.temp",
     [](SamplingParams& p, double v) { p.temperature = static_cast<float>(v); }},
    {"top_k", "general.sampling.top_k", [](SamplingParams& p, double v) { p.top_k = count_of(v); }},
    {"top_p", "general.sampling.top_p",
     [](SamplingParams& p, double v) { p.top_p = static_cast<float>(v); }},
    {"min_p", "general.sampling.min_p",
     [](SamplingParams& p, double v) { p.min_p = static_cast<float>(v); }},
    {"typical_p", "general.sampling.typ_p",
     [](SamplingParams& p, double v) { p.typical_p = static_cast<float>(v); }},
    {"repetition_penalty", "general.sampling.penalty_repeat",
     [](SamplingParams& p, double v) { p.repetition_penalty = static_cast<float>(v); }},
};

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

}  // namespace

SamplingParams read_sampling_defaults(const WeightSource& source,
                                      std::vector<std::string>& ignored) {
  SamplingParams params;
  for (const Field& field : kFields) {
    const std::optional<double> value = value_of(source, field);
    if (!value) continue;
    SamplingParams changed = params;
    field.set(changed, *value);
    const Status status = std::isnan(*value) ? invalid_argument("{} is no number", field.name)
                                             : changed.validate(UINT32_MAX);
    if (status.ok()) {
      params = std::move(changed);
    } else {
      ignored.push_back(status.message());
    }
  }
  return params;
}

}  // namespace skein
