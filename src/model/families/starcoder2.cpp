// StarCoder2: layer norms, biases everywhere, a plain feed-forward with gelu.
#include "model/families/family.h"

namespace skein {
namespace {

void set_starcoder2(ModelSpec& spec) {
  spec.norm = NormKind::kLayer;
  spec.activation.kind = Activation::kGeluTanh;
}

void set_biases(TensorNames& names, Bias bias) {
  names.qkv.bias = names.o.bias = names.gate_up.bias = names.down.bias = bias;
}

}  // namespace

ModelDescription starcoder2_from_config(const HfConfig& config) {
  ModelDescription coder = hf_base(config);
  expect_activation(config, "hidden_act", "gelu_pytorch_tanh");
  set_starcoder2(coder.spec);
  coder.spec.norm_epsilon = static_cast<float>(config.number_or("norm_epsilon", 1e-5));
  hf_windows(config, coder.spec, [&](uint32_t) { return config.has("sliding_window"); });
  coder.names.gate_up.modules = {"model.layers.{L}.mlp.c_fc"};
  coder.names.down.modules = {"model.layers.{L}.mlp.c_proj"};
  set_biases(coder.names, bias_if(config.flag_or("use_bias", true)));
  return coder;
}

ModelDescription starcoder2_from_gguf(const GgufConfig& config) {
  ModelDescription coder = gguf_base(config);
  set_starcoder2(coder.spec);
  coder.spec.norm_epsilon =
      static_cast<float>(config.number_or("attention.layer_norm_epsilon", 1e-5));
  coder.names.gate_up.modules = {"blk.{L}.ffn_up"};
  set_biases(coder.names, Bias::kIfThere);
  return coder;
}

}  // namespace skein
