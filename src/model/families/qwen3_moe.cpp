// Qwen3-MoE: Qwen3 with experts, in all layers or in some.
#include <algorithm>

#include "model/families/family.h"

namespace skein {

ModelDescription qwen3_moe_from_config(const HfConfig& config) {
  ModelDescription qwen = hf_base(config);
  ModelSpec& spec = qwen.spec;
  expect_activation(config, "hidden_act", "silu");
  spec.qk_norm = QkNorm::kPerHead;
  qwen.names.qkv.bias = qwen.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  const bool slides = config.flag_or("use_sliding_window", false);
  hf_windows(config, spec, [&](uint32_t) { return slides; });
  use_experts(
      spec,
      {.count = config.count(config.has("num_experts") ? "num_experts" : "num_local_experts"),
       .used = config.count("num_experts_per_tok"),
       .ffn = config.count("moe_intermediate_size"),
       .router = config.flag_or("norm_topk_prob", false) ? RouterKind::kSoftmaxThenTopNormalized
                                                         : RouterKind::kSoftmaxThenTop});
  const uint32_t step = std::max(config.count_or("decoder_sparse_step", 1), 1u);
  std::vector<float> dense;
  if (config.has("mlp_only_layers")) dense = config.numbers("mlp_only_layers");
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    const bool is_dense =
        std::find(dense.begin(), dense.end(), static_cast<float>(i)) != dense.end();
    spec.layers[i].experts = !is_dense && (i + 1) % step == 0;
  }
  use_stacked_experts(config, qwen.names, "model.layers.{L}.mlp.");
  return qwen;
}

ModelDescription qwen3_moe_from_gguf(const GgufConfig& config) {
  ModelDescription qwen = gguf_base(config);
  qwen.spec.qk_norm = QkNorm::kPerHead;
  qwen.names.qkv.bias = qwen.names.o.bias = Bias::kIfThere;
  if (!qwen.spec.experts) config.count("expert_count");
  return qwen;
}

}  // namespace skein
