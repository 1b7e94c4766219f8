// Llama 2 and 3, and all that is built like them: Mistral and Mixtral too, in GGUF.
#include "model/families/family.h"

namespace skein {

ModelDescription llama_from_config(const HfConfig& config) {
  ModelDescription llama = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  llama.names.qkv.bias = llama.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  llama.names.gate_up.bias = llama.names.down.bias = bias_if(config.flag_or("mlp_bias", false));
  return llama;
}

ModelDescription llama_from_gguf(const GgufConfig& config) {
  ModelDescription llama = gguf_base(config);
  llama.spec.family = llama.spec.experts ? "mixtral" : "llama";
  llama.spec.rope_layout = RopeLayout::kPairs;
  llama.names.qkv.bias = llama.names.o.bias = Bias::kIfThere;
  llama.names.gate_up.bias = llama.names.down.bias = Bias::kIfThere;
  use_window(llama.spec, config.count_or("attention.sliding_window", 0));
  return llama;
}

}  // namespace skein
