// Granite: Llama with four multipliers.
#include "model/families/family.h"

namespace skein {

ModelDescription granite_from_config(const HfConfig& config) {
  ModelDescription granite = hf_base(config);
  ModelSpec& spec = granite.spec;
  expect_activation(config, "hidden_act", "silu");
  spec.attention_scale = static_cast<float>(config.number_or("attention_multiplier", 1));
  spec.embedding_scale = static_cast<float>(config.number_or("embedding_multiplier", 1));
  spec.residual_scale = static_cast<float>(config.number_or("residual_multiplier", 1));
  spec.logit_scale = static_cast<float>(1 / config.number_or("logits_scaling", 1));
  granite.names.qkv.bias = granite.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  granite.names.gate_up.bias = granite.names.down.bias = bias_if(config.flag_or("mlp_bias", false));
  return granite;
}

ModelDescription granite_from_gguf(const GgufConfig& config) {
  ModelDescription granite = gguf_base(config);
  ModelSpec& spec = granite.spec;
  spec.rope_layout = RopeLayout::kPairs;
  spec.embedding_scale = static_cast<float>(config.number_or("embedding_scale", 1));
  spec.residual_scale = static_cast<float>(config.number_or("residual_scale", 1));
  spec.logit_scale = static_cast<float>(1 / config.number_or("logit_scale", 1));
  granite.names.qkv.bias = granite.names.o.bias = Bias::kIfThere;
  granite.names.gate_up.bias = granite.names.down.bias = Bias::kIfThere;
  return granite;
}

}  // namespace skein
