// ModelTensors: the tensors of a file, each in its place in the decoder, all of them there and of
// the right shape. Nothing of them has been read yet.
#pragma once

#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "format/weight_source.h"
#include "model/families/family.h"

namespace skein {

struct LinearTensors {
  std::vector<WeightView> parts;   // one below the other
  std::vector<TensorView> biases;  // one per part, or none at all
};

struct NormTensors {
  std::vector<TensorView> weight;  // one after the other; none: this norm is not there
  std::optional<TensorView> bias;
};

// One projection of all experts of a layer.
struct ExpertTensors {
  ExpertPacking packing = ExpertPacking::kSeparate;
  std::vector<std::vector<WeightView>> experts;  // kSeparate, kStacked: the parts of each
  TensorView values, scales;                     // the others: what has to be repacked
  std::vector<TensorView> biases;                // [experts, N] each, side by side; or none
};

struct LayerTensors {
  NormTensors attention_norm, post_attention_norm, ffn_norm, post_ffn_norm, q_norm, k_norm;
  LinearTensors qkv, o, gate_up, down, router;
  ExpertTensors expert_gate_up, expert_down;
  std::optional<TensorView> sinks;
};

struct ModelTensors {
  LinearTensors embedding;
  LinearTensors head;  // no parts: the embedding
  NormTensors final_norm;
  LinearTensors positions, types;  // of an encoder, which has neither head nor final norm
  NormTensors embedding_norm;
  std::vector<LayerTensors> layers;
};

// kNotFound names a tensor that is missing; kInvalidArgument names one whose shape or element type
// is not what the spec asks for, with both, or one that the family has no use for.
Result<ModelTensors> resolve_tensors(const WeightSource& source,
                                     const ModelDescription& description);

}  // namespace skein
