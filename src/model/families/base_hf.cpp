// The part of config.json that all families share.
#include <cmath>

#include "format/quote.h"
#include "model/families/family.h"

namespace skein {
namespace {

uint32_t served_context(const HfConfig& config) {
  return config.file().max_context != 0 ? config.file().max_context
                                        : config.count("max_position_embeddings");
}

// Short or long factors: by the context that is served, once and for all (rope.h).
void set_longrope(const HfConfig& config, const HfConfig& scaling, RopeParams& params) {
  const uint32_t original = scaling.count_or(
      "original_max_position_embeddings",
      config.count_or("original_max_position_embeddings", config.count("max_position_embeddings")));
  const bool is_long = served_context(config) > original;
  params.kind = RopeKind::kFactors;
  params.factors = scaling.numbers(is_long ? "long_factor" : "short_factor");
  const double factor = scaling.number_or(
      "factor", static_cast<double>(config.count("max_position_embeddings")) / original);
  params.magnitude =
      scaling.number_or("attention_factor", longrope_magnitude(factor * original, original));
}

void set_yarn(const HfConfig& config, const HfConfig& scaling, RopeParams& params) {
  params.kind = RopeKind::kYarn;
  params.factor = scaling.number("factor");
  params.original_context = scaling.number_or("original_max_position_embeddings",
                                              config.count("max_position_embeddings"));
  params.beta_fast = scaling.number_or("beta_fast", 32);
  params.beta_slow = scaling.number_or("beta_slow", 1);
  params.truncate = scaling.flag_or("truncate", true);
  if (scaling.has("attention_factor")) {
    params.magnitude = scaling.number("attention_factor");
  } else if (scaling.has("mscale") && scaling.has("mscale_all_dim")) {
    params.magnitude = yarn_magnitude(params.factor, scaling.number("mscale")) /
                       yarn_magnitude(params.factor, scaling.number("mscale_all_dim"));
  }
}

void set_llama3(const HfConfig& config, const HfConfig& scaling, RopeParams& params) {
  params.kind = RopeKind::kLlama3;
  params.factor = scaling.number("factor");
  params.low_freq_factor = scaling.number("low_freq_factor");
  params.high_freq_factor = scaling.number("high_freq_factor");
  params.original_context = scaling.number_or("original_max_position_embeddings",
                                              config.count("max_position_embeddings"));
}

void set_scaling(const HfConfig& config, const HfConfig& scaling, RopeParams& params) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "linear") {
    params.kind = RopeKind::kLinear;
    params.factor = scaling.number("factor");
  } else if (type == "llama3") {
    set_llama3(config, scaling, params);
  } else if (type == "yarn") {
    set_yarn(config, scaling, params);
  } else if (type == "longrope" || type == "su") {
    set_longrope(config, scaling, params);
  } else if (type != "default" && type != "dynamic") {  // dynamic: plain up to the model's context
    config.fail(unimplemented("config.json: rope type {} is not known", in_quotes(type)));
  }
}

}  // namespace

RopeParams hf_rope(const HfConfig& config, uint32_t head_dim, std::string_view layer_type) {
  const bool is_new = config.has("rope_parameters");
  const HfConfig all = config.part(is_new ? "rope_parameters" : "rope_scaling");
  const bool is_split = is_new && !layer_type.empty() && all.has(layer_type);
  const HfConfig scaling = is_split ? all.part(layer_type) : all;
  RopeParams params;
  params.theta = scaling.number_or("rope_theta", config.number_or("rope_theta", 10'000));
  const double share =
      scaling.number_or("partial_rotary_factor", config.number_or("partial_rotary_factor", 1));
  if (share > 0 && share <= 1) {
    params.dims = static_cast<uint32_t>(head_dim * share);
  } else {
    config.fail(invalid_argument("config.json: partial_rotary_factor is {}, 0 to 1", share));
  }
  set_scaling(config, scaling, params);
  return params;
}

void hf_windows(const HfConfig& config, ModelSpec& spec,
                const std::function<bool(uint32_t)>& slides) {
  std::vector<std::string> types;
  if (config.has("layer_types")) {
    types = config.texts("layer_types");
    if (types.size() != spec.layers.size()) {
      return config.fail(invalid_argument("config.json: layer_types names {} layers of {}",
                                          types.size(), spec.layers.size()));
    }
  }
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    const bool sliding = types.empty() ? slides(i) : types[i] == "sliding_attention";
    if (!sliding && !types.empty() && types[i] != "full_attention") {
      return config.fail(
          unimplemented("config.json: layers of type {} are not known", in_quotes(types[i])));
    }
    spec.layers[i].window = sliding ? config.count("sliding_window") : 0;
  }
}

void expect_activation(const HfConfig& config, std::string_view key, std::string_view name) {
  const std::string found = config.text_or(key, name);
  if (found == name) return;
  config.fail(unimplemented("config.json: {} is {}, only {} is known here", key, in_quotes(found),
                            in_quotes(name)));
}

void use_stacked_experts(const HfConfig& config, TensorNames& names, const std::string& block) {
  const std::string stack = block + "switch_mlp.";
  if (config.file().find(expand(stack, 0) + "down_proj.weight") == nullptr) return;
  names.experts = {
      ExpertPacking::kStacked, {stack + "gate_proj", stack + "up_proj"}, stack + "down_proj"};
}

ModelDescription hf_base(const HfConfig& config, std::string_view prefix) {
  // Embedding models are often saved without the part that the prefix names, and without a head.
  const bool is_bare =
      config.file().find(fmt::format("{}embed_tokens.weight", prefix)) == nullptr &&
      config.file().find("embed_tokens.weight") != nullptr;
  ModelDescription description{.spec = {}, .names = hf_names(is_bare ? "" : prefix)};
  ModelSpec& spec = description.spec;
  spec.vocab = config.count("vocab_size");
  spec.hidden = config.count("hidden_size");
  spec.heads = config.count("num_attention_heads");
  spec.kv_heads = config.count_or("num_key_value_heads", spec.heads);
  spec.head_dim = config.count_or("head_dim", spec.hidden / spec.heads);
  if (!config.has("head_dim") && spec.hidden % spec.heads != 0) {
    config.fail(invalid_argument("config.json: hidden_size {} is not a multiple of {} heads",
                                 spec.hidden, spec.heads));
  }
  spec.ffn = config.count("intermediate_size");
  spec.context = config.count("max_position_embeddings");
  const uint32_t layers = config.count("num_hidden_layers");
  if (layers > kMaxLayers) {
    config.fail(invalid_argument("config.json: {} layers, at most {}", layers, kMaxLayers));
  }
  spec.layers.resize(std::min(layers, kMaxLayers));
  spec.norm_epsilon = static_cast<float>(config.number_or("rms_norm_eps", 1e-6));
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  const std::string head = description.names.head + ".weight";
  const bool lacks_head = config.file().find(head) == nullptr;
  spec.tied_head = config.flag_or("tie_word_embeddings", lacks_head) || (is_bare && lacks_head);
  if (spec.tied_head) description.names.others.push_back(head);
  use_rope(config, spec, hf_rope(config, spec.head_dim));
  return description;
}

}  // namespace skein
