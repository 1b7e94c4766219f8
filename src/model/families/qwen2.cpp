// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
#include "model/families/family.h"

namespace skein {

ModelDescription qwen2_from_config(const HfConfig& config) {
  ModelDescription qwen = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  qwen.names.qkv.bias = Bias::kRequired;
  const bool slides = config.flag_or("use_sliding_window", false);
  const uint32_t first = config.count_or("max_window_layers", 28);
  hf_windows(config, qwen.spec, [&](uint32_t layer) { return slides && layer >= first; });
  return qwen;
}

ModelDescription qwen2_from_gguf(const GgufConfig& config) {
  ModelDescription qwen = gguf_base(config);
  qwen.names.qkv.bias = Bias::kRequired;
  return qwen;
}

}  // namespace skein
