// StableLM 2: layer norms, a quarter of a head turns; the 12B runs attention and feed-forward side
// by side and norms every head of q and k with a weight of its own.
#include "model/families/family.h"

namespace skein {
namespace {

void set_stablelm(ModelSpec& spec, bool parallel, bool qk_norm) {
  spec.norm = NormKind::kLayer;
  spec.parallel_residual = parallel;
  spec.pre_ffn_norm = !parallel;
  spec.qk_norm = qk_norm ? QkNorm::kPerHeadOwn : QkNorm::kNone;
}

}  // namespace

ModelDescription stablelm_from_config(const HfConfig& config) {
  ModelDescription stable = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  set_stablelm(stable.spec, config.flag_or("use_parallel_residual", false),
               config.flag_or("qk_layernorm", false));
  stable.spec.norm_epsilon = static_cast<float>(config.number_or("layer_norm_eps", 1e-5));
  if (!config.has("rope_parameters") && !config.has("partial_rotary_factor")) {
    RopeParams rope = hf_rope(config, stable.spec.head_dim);
    rope.dims = stable.spec.head_dim / 4;
    use_rope(config, stable.spec, rope);
  }
  stable.names.qkv.bias = bias_if(config.flag_or("use_qkv_bias", false));
  stable.names.q_norm = "model.layers.{L}.self_attn.q_layernorm.norms.{E}";
  stable.names.k_norm = "model.layers.{L}.self_attn.k_layernorm.norms.{E}";
  return stable;
}

ModelDescription stablelm_from_gguf(const GgufConfig& config) {
  ModelDescription stable = gguf_base(config);
  // use_parallel_residual is true in the metadata of the 12B alone, and it alone has no second
  // norm.
  const ModelFile& file = config.file();
  set_stablelm(stable.spec, file.find("blk.0.ffn_norm.weight") == nullptr,
               file.find("blk.0.attn_q_norm.weight") != nullptr);
  stable.spec.norm_epsilon =
      static_cast<float>(config.number_or("attention.layer_norm_epsilon", 1e-5));
  stable.names.qkv.bias = Bias::kIfThere;
  return stable;
}

}  // namespace skein
