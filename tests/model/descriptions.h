// Specs from text, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/gguf_writer.h"
#include "model/families/family.h"

namespace skein::testing {

inline Result<ModelDescription> from_config(const Json& config, uint32_t max_context = 0,
                                            std::vector<NamedTensor> tensors = {}) {
  return describe_config(config, {tensors, max_context});
}

// Of a GGUF file in memory.
inline Result<ModelDescription> from_gguf(const std::vector<std::byte>& bytes,
                                          uint32_t max_context = 0) {
  SKEIN_ASSIGN(gguf::GgufFile file, gguf::parse_gguf(bytes));
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return describe_gguf(file.metadata, {file.tensors, max_context});
}

// The file of these keys, and a table of tokens, which gives the size of the vocabulary.
inline std::vector<std::byte> with_embedding(GgufWriter writer) {
  return writer.tensor({.name = "token_embd.weight", .dims = {64, 100}}).build();
}

// The keys that every architecture has.
inline GgufWriter gguf_config(std::string_view arch, uint32_t layers = 2) {
  const std::string prefix = std::string(arch) + ".";
  GgufWriter w;
  w.string("general.architecture", arch)
      .u32(prefix + "block_count", layers)
      .u32(prefix + "context_length", 131'072)
      .u32(prefix + "embedding_length", 64)
      .u32(prefix + "feed_forward_length", 128)
      .u32(prefix + "attention.head_count", 4)
      .u32(prefix + "attention.head_count_kv", 2);
  return w;
}

// The JSON of a config that has only what all families need.
inline Json small_config(std::string_view model_type) {
  return {{"model_type", model_type},       {"vocab_size", 100},        {"hidden_size", 64},
          {"num_attention_heads", 4},       {"num_key_value_heads", 2}, {"intermediate_size", 128},
          {"num_hidden_layers", 4},         {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},
          {"max_position_embeddings", 2048}};
}

}  // namespace skein::testing
