// A model as its files alone tell it: the facts that `skein inspect` shows. Nothing of the
// weights is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/weight_source.h"

namespace skein {

// A number of the architecture: {"kv_heads", "KV heads", 3}.
struct ShapeFact {
  std::string_view key;
  std::string_view label;
  uint64_t value = 0;  // the largest, where layers differ
};

// The tensors that share an element type.
struct TypeShare {
  std::string type;  // "Q4_K", or "affine 4-bit, groups of 64" for MLX
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct SpecialToken {
  std::string role;  // "bos", "eos", "eot", ...; a role may have several ids
  int64_t id = 0;
  std::string text;  // empty when the files do not say
};

struct TokenizerFacts {
  std::string kind;           // "gpt2", "llama" (GGUF); "BPE", "Unigram" (tokenizer.json); or empty
  std::string pre_tokenizer;  // GGUF's name for it
  uint64_t vocabulary = 0;    // tokens, added ones included
  std::vector<SpecialToken> special;
};

struct ModelSummary {
  std::string architecture;  // "llama", "qwen3_moe"
  std::string name;          // GGUF's general.name; empty without one
  std::vector<ShapeFact> shape;
  std::vector<TypeShare> types;  // by bytes, largest first
  uint64_t parameters = 0;
  uint64_t tensor_bytes = 0;
  // The KV bytes of one token in all layers at 16 bits, as if every layer kept the whole context;
  // nullopt when the files do not give the shape of the heads.
  std::optional<uint64_t> kv_bytes_per_token;
  TokenizerFacts tokenizer;
  std::optional<std::string> chat_template;

  std::optional<uint64_t> shape_of(std::string_view key) const;
};

// Errors name the key that holds something else than it should.
Result<ModelSummary> summarize(const WeightSource& source);

// Products of numbers from untrusted files; UINT64_MAX stands for more.
uint64_t saturating_product(uint64_t a, uint64_t b);

}  // namespace skein
