#include <fmt/format.h>

#include "format/quote.h"
#include "model/families/family.h"

namespace skein {

#define SKEIN_FAMILY(name, model_types, architectures)         \
  ModelDescription name##_from_config(const HfConfig& config); \
  ModelDescription name##_from_gguf(const GgufConfig& config);
#define SKEIN_FOLDER_FAMILY(name, model_types) \
  ModelDescription name##_from_config(const HfConfig& config);
#include "model/families/registry.def"

namespace {

struct Family {
  std::string_view name, model_types, architectures;
  ModelDescription (*from_config)(const HfConfig&);
  ModelDescription (*from_gguf)(const GgufConfig&);
};

constexpr Family kFamilies[] = {
#define SKEIN_FAMILY(name, model_types, architectures) \
  {#name, model_types, architectures, name##_from_config, name##_from_gguf},
#define SKEIN_FOLDER_FAMILY(name, model_types) \
  {#name, model_types, "", name##_from_config, nullptr},
#include "model/families/registry.def"
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// Weights that somebody's tool has packed its own way; MLX's are read, and gpt-oss's.
Status check_quantization(const HfConfig& config) {
  const HfConfig quantization = config.part("quantization_config");
  const std::string method = quantization.text_or("quant_method", "");
  SKEIN_TRY(config.status());
  if (method.empty() || method == "mxfp4") return ok_status();
  return unimplemented("config.json: weights quantized by {} are not read", in_quotes(method));
}

Result<ModelDescription> finished(ModelDescription description, std::string_view family,
                                  const Config& config) {
  SKEIN_TRY(config.status());
  if (description.spec.family.empty()) description.spec.family = family;
  SKEIN_TRY(check_spec(description.spec));
  return description;
}

}  // namespace

std::string known_families() {
  std::string names;
  for (const Family& family : kFamilies) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.name);
  }
  return names;
}

Result<ModelDescription> describe_config(const Json& json, const ModelFile& file) {
  if (!json.is_object()) return invalid_argument("config.json is a {}", json.type_name());
  Status fault;
  const HfConfig config(json, file, fault);
  const std::string type = config.text_or("model_type", "");
  SKEIN_TRY(fault);
  for (const Family& family : kFamilies) {
    if (!has_word(family.model_types, type)) continue;
    SKEIN_TRY(check_quantization(config));
    return finished(family.from_config(config), family.name, config);
  }
  return unimplemented("config.json: model_type {} is not known; known are {}", in_quotes(type),
                       known_families());
}

Result<ModelDescription> describe_gguf(const gguf::Metadata& metadata, const ModelFile& file) {
  SKEIN_ASSIGN(const std::string_view architecture,
               metadata.get<std::string_view>("general.architecture"));
  Status fault;
  const GgufConfig config(metadata, architecture, file, fault);
  for (const Family& family : kFamilies) {
    if (!has_word(family.architectures, architecture)) continue;
    return finished(family.from_gguf(config), family.name, config);
  }
  return unimplemented("architecture {} is not known; known are {}", in_quotes(architecture),
                       known_families());
}

}  // namespace skein
