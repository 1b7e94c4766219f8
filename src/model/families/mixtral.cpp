// Mixtral: Mistral with experts. GGUF calls it llama.
#include "model/families/family.h"

namespace skein {

ModelDescription mixtral_from_config(const HfConfig& config) {
  ModelDescription mixtral = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  hf_windows(config, mixtral.spec, [&](uint32_t) { return config.has("sliding_window"); });
  use_experts(mixtral.spec, {.count = config.count("num_local_experts"),
                             .used = config.count("num_experts_per_tok"),
                             .ffn = mixtral.spec.ffn,
                             .router = RouterKind::kSoftmaxThenTopNormalized});
  const std::string block = "model.layers.{L}.block_sparse_moe.";
  mixtral.names.router.modules = {block + "gate"};
  mixtral.names.experts.gate_up = {block + "experts.{E}.w1", block + "experts.{E}.w3"};
  mixtral.names.experts.down = block + "experts.{E}.w2";
  use_stacked_experts(config, mixtral.names, block);
  return mixtral;
}

}  // namespace skein
