// Which tensors of a file make up a decoder. The standard names of both worlds are here; a family
// changes the few that it spells differently.
//
// A name is a pattern: {L} is the layer, {E} an expert or a head. Names are those of modules, to
// which ".weight" and ".bias" are added, unless said otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skein {

enum class Bias : uint8_t { kNone, kIfThere, kRequired };

struct LinearNames {
  std::vector<std::string> modules;  // one below the other: q, k, v; or one that is all of them
  Bias bias = Bias::kNone;
};

enum class ExpertPacking : uint8_t {
  kSeparate,    // a module per expert: [N, K]
  kStacked,     // one module for all: [experts, N, K]
  kTransposed,  // NAME, NAME_bias: [experts, K, N]; gate and up columns alternate
  kMxfp4,       // NAME_blocks, NAME_scales, NAME_bias: [experts, N, K / 32 (, 16)]; rows alternate
};

struct ExpertNames {
  ExpertPacking packing = ExpertPacking::kSeparate;
  std::vector<std::string> gate_up;
  std::string down{};
  bool biases = false;
};

struct TensorNames {
  std::string embedding, final_norm, head;
  std::string attention_norm, post_attention_norm, ffn_norm, post_ffn_norm;
  std::string q_norm, k_norm;  // with {E}: a tensor per head
  std::string sinks;           // the whole name
  LinearNames qkv, o, gate_up, down, router;
  ExpertNames experts;
  std::string positions, types, embedding_norm;  // of an encoder
  bool norms_minus_one = false;                  // files store norm weights less one

  // Whole names: what making the spec has read already, and what is there for nothing.
  std::vector<std::string> others;
};

// `prefix` is what stands before "layers.0": "model." mostly.
TensorNames hf_names(std::string_view prefix = "model.");
TensorNames gguf_names();

std::string expand(std::string_view pattern, uint32_t layer, uint32_t item = 0);

// Tensors that no decoder uses and that a file may have all the same: tables that are computed
// anyway, vision towers, layers for predicting several tokens, the labels of a model that ranks
// (engine/loading/vectors.h reads them), what an encoder was trained with.
bool may_be_ignored(std::string_view name);

}  // namespace skein
