// gpt-oss: experts with biases and a clamped swiglu, attention with sinks, yarn, a window in every
// other layer. The experts of its folders are MXFP4 (or plain, where somebody has unpacked them).
#include "model/families/family.h"

namespace skein {
namespace {

constexpr float kAlpha = 1.702F;
constexpr float kLimit = 7;

void set_gpt_oss(ModelDescription& gpt) {
  gpt.spec.attention_sinks = true;
  gpt.spec.activation = {Activation::kSwigluClamped, kAlpha, kLimit};
  gpt.spec.experts->router = RouterKind::kTopThenSoftmax;
  gpt.names.qkv.bias = gpt.names.o.bias = gpt.names.router.bias = Bias::kRequired;
  gpt.names.experts.biases = true;
}

}  // namespace

ModelDescription gpt_oss_from_config(const HfConfig& config) {
  ModelDescription gpt = hf_base(config);
  use_experts(gpt.spec,
              {.count = config.count("num_local_experts"),
               .used = config.count(config.has("num_experts_per_tok") ? "num_experts_per_tok"
                                                                      : "experts_per_token"),
               .ffn = gpt.spec.ffn});
  set_gpt_oss(gpt);
  gpt.spec.activation.alpha = static_cast<float>(config.number_or("swiglu_alpha", kAlpha));
  gpt.spec.activation.limit = static_cast<float>(config.number_or("swiglu_limit", kLimit));
  hf_windows(config, gpt.spec, [](uint32_t layer) { return layer % 2 == 0; });
  gpt.names.router.modules = {"model.layers.{L}.mlp.router"};
  gpt.names.experts.gate_up = {"model.layers.{L}.mlp.experts.gate_up_proj"};
  gpt.names.experts.down = "model.layers.{L}.mlp.experts.down_proj";
  const bool is_plain = config.file().find(expand(gpt.names.experts.gate_up[0], 0)) != nullptr;
  gpt.names.experts.packing = is_plain ? ExpertPacking::kTransposed : ExpertPacking::kMxfp4;
  return gpt;
}

ModelDescription gpt_oss_from_gguf(const GgufConfig& config) {
  ModelDescription gpt = gguf_base(config);
  if (!gpt.spec.experts) {
    config.count("expert_count");
    return gpt;
  }
  set_gpt_oss(gpt);
  RopeParams rope = gguf_rope(config, gpt.spec.head_dim);
  rope.truncate = false;  // GGUF cannot say it; the models are all so
  use_rope(config, gpt.spec, rope);
  const uint32_t window = config.count("attention.sliding_window");
  for (size_t i = 0; i < gpt.spec.layers.size(); i += 2) gpt.spec.layers[i].window = window;
  gpt.names.ffn_norm = "blk.{L}.post_attention_norm";
  return gpt;
}

}  // namespace skein
