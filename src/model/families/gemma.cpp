// Gemma 2: norms before and after, soft caps, a window in every other layer. Gemma 3: a norm on
// every head of q and k instead of soft caps, and another rope in the layers that slide. Folders of
// the multimodal form have the text model inside; its vision tower is left alone.
#include <algorithm>
#include <cmath>

#include "model/families/family.h"

namespace skein {
namespace {

constexpr uint32_t kPattern = 6;  // Gemma 3: the last of so many layers sees everything

void set_gemma(ModelSpec& spec) {
  spec.post_attention_norm = spec.post_ffn_norm = true;
  spec.activation.kind = Activation::kGeluTanhGated;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
}

ModelDescription gemma_from_config(const HfConfig& config, const std::string& prefix) {
  ModelDescription gemma = hf_base(config, prefix);
  ModelSpec& spec = gemma.spec;
  set_gemma(spec);
  expect_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.attention_scale =
      1 / std::sqrt(static_cast<float>(config.number_or("query_pre_attn_scalar", 256)));
  spec.attention_softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 0));
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0));
  const std::string layer = prefix + "layers.{L}.";
  gemma.names.post_attention_norm = layer + "post_attention_layernorm";
  gemma.names.ffn_norm = layer + "pre_feedforward_layernorm";
  gemma.names.post_ffn_norm = layer + "post_feedforward_layernorm";
  gemma.names.norms_minus_one = true;
  gemma.names.qkv.bias = gemma.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  return gemma;
}

// GGUF cannot say the query scale: the 27B's, told by its layers, is that of hidden size / heads,
// the others' the head's.
ModelDescription gemma_from_gguf(const GgufConfig& config, size_t layers_of_27b,
                                 double logit_softcap) {
  ModelDescription gemma = gguf_base(config);
  ModelSpec& spec = gemma.spec;
  set_gemma(spec);
  if (spec.layers.size() == layers_of_27b) {
    const uint32_t width = spec.hidden / spec.heads;
    spec.attention_scale = 1 / std::sqrt(static_cast<float>(width));
  }
  spec.logit_softcap =
      static_cast<float>(config.number_or("final_logit_softcapping", logit_softcap));
  return gemma;
}

void set_ropes(const Config& config, ModelSpec& spec, const RopeParams& full,
               const RopeParams& sliding) {
  spec.ropes.clear();
  const uint32_t full_rope = add_rope(config, spec, full);
  const uint32_t sliding_rope = add_rope(config, spec, sliding);
  for (LayerSpec& layer : spec.layers) layer.rope = layer.window > 0 ? sliding_rope : full_rope;
}

// Before rope_parameters there were two thetas, and the scaling was that of the full layers.
RopeParams sliding_rope(const HfConfig& config, const ModelSpec& spec) {
  if (config.has("rope_parameters")) return hf_rope(config, spec.head_dim, "sliding_attention");
  return {.theta = config.number_or("rope_local_base_freq", 10'000), .dims = spec.head_dim};
}

// The multimodal form leaves out what is as in the first model of the family.
Json text_config(const HfConfig& whole) {
  Json config = {
      {"vocab_size", 262'208}, {"num_attention_heads", 8},           {"num_key_value_heads", 4},
      {"head_dim", 256},       {"max_position_embeddings", 131'072}, {"rms_norm_eps", 1e-6},
      {"rope_theta", 1e6},     {"query_pre_attn_scalar", 256},       {"sliding_window", 4096}};
  if (whole.has("tie_word_embeddings")) {
    config["tie_word_embeddings"] = whole.flag_or("tie_word_embeddings", true);
  }
  config.update(whole.part("text_config").object());
  return config;
}

std::string_view text_prefix(const ModelFile& file) {
  for (const std::string_view prefix : {"language_model.model.", "model.language_model."}) {
    if (file.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  return "model.";
}

}  // namespace

ModelDescription gemma2_from_config(const HfConfig& config) {
  ModelDescription gemma = gemma_from_config(config, "model.");
  hf_windows(config, gemma.spec, [](uint32_t layer) { return layer % 2 == 0; });
  return gemma;
}

ModelDescription gemma2_from_gguf(const GgufConfig& config) {
  ModelDescription gemma = gemma_from_gguf(config, 46, 30);
  ModelSpec& spec = gemma.spec;
  spec.attention_softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 50));
  const uint32_t window = config.count_or("attention.sliding_window", 4096);
  for (size_t i = 0; i < spec.layers.size(); i += 2) spec.layers[i].window = window;
  return gemma;
}

ModelDescription gemma3_from_config(const HfConfig& whole) {
  const Json text = text_config(whole);
  const HfConfig config = whole.has("text_config") ? whole.with(text) : whole;
  ModelDescription gemma = gemma_from_config(config, std::string(text_prefix(config.file())));
  ModelSpec& spec = gemma.spec;
  spec.qk_norm = QkNorm::kPerHead;
  const uint32_t pattern =
      std::max(config.count_or("sliding_window_pattern",
                               config.count_or("_sliding_window_pattern", kPattern)),
               1u);
  hf_windows(config, spec, [&](uint32_t layer) { return (layer + 1) % pattern != 0; });
  set_ropes(config, spec, hf_rope(config, spec.head_dim, "full_attention"),
            sliding_rope(config, spec));
  return gemma;
}

ModelDescription gemma3_from_gguf(const GgufConfig& config) {
  ModelDescription gemma = gemma_from_gguf(config, 62, 0);
  ModelSpec& spec = gemma.spec;
  spec.qk_norm = QkNorm::kPerHead;
  const uint32_t window = config.count("attention.sliding_window");
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].window = (i + 1) % kPattern == 0 ? 0 : window;
  }
  set_ropes(config, spec, gguf_rope(config, spec.head_dim),
            {.theta = config.number_or("rope.freq_base_swa", 10'000), .dims = spec.head_dim});
  return gemma;
}

}  // namespace skein
