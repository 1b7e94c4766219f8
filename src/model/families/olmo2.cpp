// OLMo 2: norms after attention and feed-forward instead of before, and one over all of q and k.
#include "model/families/family.h"

namespace skein {
namespace {

void set_olmo2(ModelSpec& spec) {
  spec.pre_attention_norm = spec.pre_ffn_norm = false;
  spec.post_attention_norm = spec.post_ffn_norm = true;
  spec.qk_norm = QkNorm::kFullWidth;
}

}  // namespace

ModelDescription olmo2_from_config(const HfConfig& config) {
  ModelDescription olmo = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  set_olmo2(olmo.spec);
  olmo.names.post_attention_norm = "model.layers.{L}.post_attention_layernorm";
  olmo.names.post_ffn_norm = "model.layers.{L}.post_feedforward_layernorm";
  olmo.names.qkv.bias = olmo.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  return olmo;
}

ModelDescription olmo2_from_gguf(const GgufConfig& config) {
  ModelDescription olmo = gguf_base(config);
  set_olmo2(olmo.spec);
  return olmo;
}

}  // namespace skein
