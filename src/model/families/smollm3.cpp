// SmolLM3: Llama without positions in every fourth layer.
#include "model/families/family.h"

namespace skein {
namespace {

constexpr uint32_t kInterval = 4;

void drop_ropes(ModelSpec& spec, uint32_t interval) {
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    if (interval > 0 && (i + 1) % interval == 0) spec.layers[i].rope.reset();
  }
}

}  // namespace

ModelDescription smollm3_from_config(const HfConfig& config) {
  ModelDescription smollm = hf_base(config);
  ModelSpec& spec = smollm.spec;
  expect_activation(config, "hidden_act", "silu");
  smollm.names.qkv.bias = smollm.names.o.bias = bias_if(config.flag_or("attention_bias", false));
  smollm.names.gate_up.bias = smollm.names.down.bias = bias_if(config.flag_or("mlp_bias", false));
  if (config.has("no_rope_layers")) {
    const std::vector<float> has_rope = config.numbers("no_rope_layers");  // 0 where there is none
    if (has_rope.size() != spec.layers.size()) {
      config.fail(invalid_argument("config.json: no_rope_layers names {} layers of {}",
                                   has_rope.size(), spec.layers.size()));
      return smollm;
    }
    for (size_t i = 0; i < has_rope.size(); ++i) {
      if (has_rope[i] == 0) spec.layers[i].rope.reset();
    }
  } else {
    drop_ropes(spec, config.count_or("no_rope_layer_interval", kInterval));
  }
  const bool slides = config.flag_or("use_sliding_window", false);
  hf_windows(config, spec, [&](uint32_t layer) { return slides && !spec.layers[layer].rope; });
  return smollm;
}

ModelDescription smollm3_from_gguf(const GgufConfig& config) {
  ModelDescription smollm = gguf_base(config);
  smollm.spec.rope_layout = RopeLayout::kPairs;
  drop_ropes(smollm.spec, kInterval);
  return smollm;
}

}  // namespace skein
