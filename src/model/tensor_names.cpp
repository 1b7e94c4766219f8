#include "model/tensor_names.h"

#include <algorithm>
#include <array>

namespace skein {

TensorNames hf_names(std::string_view prefix) {
  const std::string top(prefix);
  const std::string layer = top + "layers.{L}.";
  TensorNames names;
  names.embedding = top + "embed_tokens";
  names.final_norm = top + "norm";
  names.head = top.starts_with("language_model.") ? "language_model.lm_head" : "lm_head";
  names.attention_norm = layer + "input_layernorm";
  names.ffn_norm = layer + "post_attention_layernorm";
  names.qkv.modules = {layer + "self_attn.q_proj", layer + "self_attn.k_proj",
                       layer + "self_attn.v_proj"};
  names.o.modules = {layer + "self_attn.o_proj"};
  names.q_norm = layer + "self_attn.q_norm";
  names.k_norm = layer + "self_attn.k_norm";
  names.sinks = layer + "self_attn.sinks";
  names.gate_up.modules = {layer + "mlp.gate_proj", layer + "mlp.up_proj"};
  names.down.modules = {layer + "mlp.down_proj"};
  names.router.modules = {layer + "mlp.gate"};
  names.experts.gate_up = {layer + "mlp.experts.{E}.gate_proj", layer + "mlp.experts.{E}.up_proj"};
  names.experts.down = layer + "mlp.experts.{E}.down_proj";
  return names;
}

TensorNames gguf_names() {
  const std::string layer = "blk.{L}.";
  TensorNames names;
  names.embedding = "token_embd";
  names.final_norm = "output_norm";
  names.head = "output";
  names.attention_norm = layer + "attn_norm";
  names.post_attention_norm = layer + "post_attention_norm";
  names.ffn_norm = layer + "ffn_norm";
  names.post_ffn_norm = layer + "post_ffw_norm";
  names.qkv.modules = {layer + "attn_q", layer + "attn_k", layer + "attn_v"};
  names.o.modules = {layer + "attn_output"};
  names.q_norm = layer + "attn_q_norm";
  names.k_norm = layer + "attn_k_norm";
  names.sinks = layer + "attn_sinks.weight";
  names.gate_up.modules = {layer + "ffn_gate", layer + "ffn_up"};
  names.down.modules = {layer + "ffn_down"};
  names.router.modules = {layer + "ffn_gate_inp"};
  names.experts.packing = ExpertPacking::kStacked;
  names.experts.gate_up = {layer + "ffn_gate_exps", layer + "ffn_up_exps"};
  names.experts.down = layer + "ffn_down_exps";
  return names;
}

std::string expand(std::string_view pattern, uint32_t layer, uint32_t item) {
  std::string out;
  for (size_t i = 0; i < pattern.size();) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with("{L}") || rest.starts_with("{E}")) {
      out += std::to_string(rest[1] == 'L' ? layer : item);
      i += 3;
    } else {
      out += pattern[i++];
    }
  }
  return out;
}

bool may_be_ignored(std::string_view name) {
  constexpr std::array<std::string_view, 2> kEndings = {"rotary_emb.inv_freq",
                                                        "attn_rot_embd.weight"};
  constexpr std::array<std::string_view, 10> kBeginnings = {"vision_tower.",
                                                            "vision_model.",
                                                            "multi_modal_projector.",
                                                            "model.vision_tower.",
                                                            "model.multi_modal_projector.",
                                                            "cls.output.",
                                                            "cls.predictions.",
                                                            "cls.seq_relationship.",
                                                            "mtp.",
                                                            "model.mtp."};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view part) { return name.ends_with(part); }) ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view part) { return name.starts_with(part); });
}

}  // namespace skein
