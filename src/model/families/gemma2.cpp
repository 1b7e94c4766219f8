// Gemma 2: norms before and after, soft caps, a window in every other layer.
#include <cmath>

#include "model/families/family.h"

namespace skein {
namespace {

void set_gemma2(ModelSpec& spec) {
  spec.post_attention_norm = spec.post_ffn_norm = true;
  spec.activation.kind = Activation::kGeluTanhGated;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
}

}  // namespace

ModelDescription gemma2_from_config(const HfConfig& config) {
  ModelDescription gemma = hf_base(config);
  ModelSpec& spec = gemma.spec;
  set_gemma2(spec);
  expect_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.attention_scale =
      1 / std::sqrt(static_cast<float>(config.number_or("query_pre_attn_scalar", 256)));
  spec.attention_softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 0));
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0));
  hf_windows(config, spec, [](uint32_t layer) { return layer % 2 == 0; });
  const std::string layer = "model.layers.{L}.";
  gemma.names.post_attention_norm = layer + "post_attention_layernorm";
  gemma.names.ffn_norm = layer + "pre_feedforward_layernorm";
  gemma.names.post_ffn_norm = layer + "post_feedforward_layernorm";
  gemma.names.norms_minus_one = true;
  gemma.names.qkv.bias = gemma.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  return gemma;
}

// GGUF cannot say the query scale: the 27B's is that of hidden size / heads, the others' the
// head's.
ModelDescription gemma2_from_gguf(const GgufConfig& config) {
  constexpr size_t kLayersOf27B = 46;
  ModelDescription gemma = gguf_base(config);
  ModelSpec& spec = gemma.spec;
  set_gemma2(spec);
  if (spec.layers.size() == kLayersOf27B) {
    const uint32_t width = spec.hidden / spec.heads;
    spec.attention_scale = 1 / std::sqrt(static_cast<float>(width));
  }
  spec.attention_softcap = static_cast<float>(config.number_or("attn_logit_softcapping", 50));
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 30));
  const uint32_t window = config.count_or("attention.sliding_window", 4096);
  for (size_t i = 0; i < spec.layers.size(); i += 2) spec.layers[i].window = window;
  return gemma;
}

}  // namespace skein
