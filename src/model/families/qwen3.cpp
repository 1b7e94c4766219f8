// Qwen3: Llama with a norm on every head of q and k.
#include "model/families/family.h"

namespace skein {

ModelDescription qwen3_from_config(const HfConfig& config) {
  ModelDescription qwen = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  qwen.spec.qk_norm = QkNorm::kPerHead;
  qwen.names.qkv.bias = qwen.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  const bool slides = config.flag_or("use_sliding_window", false);
  const uint32_t first = config.count_or("max_window_layers", 28);
  hf_windows(config, qwen.spec, [&](uint32_t layer) { return slides && layer >= first; });
  return qwen;
}

ModelDescription qwen3_from_gguf(const GgufConfig& config) {
  ModelDescription qwen = gguf_base(config);
  qwen.spec.qk_norm = QkNorm::kPerHead;
  qwen.names.qkv.bias = qwen.names.o.bias = Bias::kIfThere;
  return qwen;
}

}  // namespace skein
