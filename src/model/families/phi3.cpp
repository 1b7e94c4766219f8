// Phi-3 and Phi-4: Llama with q, k, v and gate, up stored as one matrix each; longrope.
#include "model/families/family.h"

namespace skein {

ModelDescription phi3_from_config(const HfConfig& config) {
  ModelDescription phi = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  hf_windows(config, phi.spec, [&](uint32_t) { return config.has("sliding_window"); });
  phi.names.qkv.modules = {"model.layers.{L}.self_attn.qkv_proj"};
  phi.names.gate_up.modules = {"model.layers.{L}.mlp.gate_up_proj"};
  return phi;
}

ModelDescription phi3_from_gguf(const GgufConfig& config) {
  ModelDescription phi = gguf_base(config);
  use_window(phi.spec, config.count_or("attention.sliding_window", 0));
  phi.names.qkv.modules = {"blk.{L}.attn_qkv"};
  phi.names.gate_up.modules = {"blk.{L}.ffn_up"};
  return phi;
}

}  // namespace skein
