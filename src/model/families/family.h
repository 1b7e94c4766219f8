// Families: from a model's own words to a ModelSpec and the names of its tensors.
//
// A family is a file here, families/NAME.cpp, and its line in registry.def. It defines
//   ModelDescription NAME_from_config(const HfConfig&)   and   ModelDescription
//   NAME_from_gguf(const GgufConfig&)
// which begin with the facts that all families share (below) and change what differs. (GGUF calls
// Mistral and Mixtral "llama", so they have no second one.) Faults stay in the config (config.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/families/config.h"
#include "model/rope.h"
#include "model/spec.h"
#include "model/tensor_names.h"

namespace skein {

struct ModelDescription {
  ModelSpec spec;
  TensorNames names;
};

// kUnimplemented for a family that is not known names it and those that are.
Result<ModelDescription> describe_config(const Json& config, const ModelFile& file);
Result<ModelDescription> describe_gguf(const gguf::Metadata& metadata, const ModelFile& file);

// The names of the families, as registry.def has them.
std::string known_families();

// Hugging Face families share this: sizes, RMS norm, silu-gated feed-forward, plain rope with its
// scaling in all layers, the query scale of the head's size, names below `prefix`.
ModelDescription hf_base(const HfConfig& config, std::string_view prefix = "model.");

// The rope that the config describes, under "rope_parameters" (of one layer type, if given) or the
// older "rope_theta" and "rope_scaling".
RopeParams hf_rope(const HfConfig& config, uint32_t head_dim, std::string_view layer_type = {});

// Makes layer i slide over `sliding_window` where "layer_types" says so; without that list, where
// `slides` does.
void hf_windows(const HfConfig& config, ModelSpec& spec,
                const std::function<bool(uint32_t)>& slides);

// Refuses any other activation than this one under that key.
void expect_activation(const HfConfig& config, std::string_view key, std::string_view name);

// The experts as MLX stacks them, where the file has them so: below `block`,
// "model.layers.{L}.mlp."
void use_stacked_experts(const HfConfig& config, TensorNames& names, const std::string& block);

// Gives every layer experts.
void use_experts(ModelSpec& spec, const ExpertSpec& experts);

// The same for GGUF. Rope scaling and rope_freqs are applied; experts where there are any.
ModelDescription gguf_base(const GgufConfig& config);
RopeParams gguf_rope(const GgufConfig& config, uint32_t head_dim);

// One rope in all layers.
void use_rope(const Config& config, ModelSpec& spec, const RopeParams& params);
// Adds a rope and gives its index.
uint32_t add_rope(const Config& config, ModelSpec& spec, const RopeParams& params);

// A window in every layer; 0: none.
void use_window(ModelSpec& spec, uint32_t window);

// kRequired or kNone.
Bias bias_if(bool required);

}  // namespace skein
