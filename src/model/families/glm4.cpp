// GLM-4 (0414): norms before and after, half of a head turns, in pairs; gate and up in one matrix.
#include "model/families/family.h"

namespace skein {
namespace {

void set_glm4(ModelDescription& glm) {
  glm.spec.post_attention_norm = glm.spec.post_ffn_norm = true;
  glm.spec.rope_layout = RopeLayout::kPairs;
}

}  // namespace

ModelDescription glm4_from_config(const HfConfig& config) {
  ModelDescription glm = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  set_glm4(glm);
  const std::string layer = "model.layers.{L}.";
  glm.names.post_attention_norm = layer + "post_self_attn_layernorm";
  glm.names.post_ffn_norm = layer + "post_mlp_layernorm";
  glm.names.gate_up.modules = {layer + "mlp.gate_up_proj"};
  glm.names.qkv.bias = bias_if(config.flag_or("attention_bias", false));
  return glm;
}

ModelDescription glm4_from_gguf(const GgufConfig& config) {
  ModelDescription glm = gguf_base(config);
  set_glm4(glm);
  glm.names.gate_up.modules = {"blk.{L}.ffn_up"};
  glm.names.qkv.bias = Bias::kIfThere;
  return glm;
}

}  // namespace skein
