// A llama of random weights with a tokenizer of single bytes, small enough for any test: what it
// says is gibberish, but always the same gibberish.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"

namespace skein::testing {

// Ids 0..255 are the bytes. The output matrix has more rows than the tokenizer has tokens, as many
// real ones do.
inline constexpr uint32_t kTinyStart = 256;  // <|im_start|>
inline constexpr uint32_t kTinyEnd = 257;    // <|im_end|>, a stop id
inline constexpr uint32_t kTinyTokens = 258;
inline constexpr uint32_t kTinyVocab = 272;
inline constexpr uint32_t kTinyContext = 512;

inline std::string utf8_of(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

inline std::string tiny_tokenizer() {
  nlohmann::json vocab;
  uint32_t id = 0;
  uint32_t beyond = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    vocab[utf8_of(printable ? byte : beyond++)] = id++;
  }
  const auto added = [](uint32_t number, const char* text) {
    return nlohmann::json{{"id", number}, {"content", text}, {"special", true}};
  };
  const nlohmann::json tokenizer = {
      {"added_tokens", {added(kTinyStart, "<|im_start|>"), added(kTinyEnd, "<|im_end|>")}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}, {"vocab", vocab}}}};
  return tokenizer.dump();
}

class TinyWeights {
 public:
  void add(const std::string& name, const std::vector<uint64_t>& shape, double scale) {
    size_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    std::vector<float> values(count, 1.0F);
    for (float& value : values) {
      if (scale == 0) break;  // norms stay 1
      value = static_cast<float>(scale * (static_cast<double>(rng_.below(20'001)) / 10'000 - 1));
    }
    writer_.tensor(name, "F32", shape, values);
  }
  std::vector<std::byte> build() { return writer_.build(); }

 private:
  Rng rng_{42};
  SafetensorsWriter writer_;
};

inline std::vector<std::byte> tiny_weights() {
  constexpr uint64_t kHidden = 64, kFfn = 96, kKv = 32;
  TinyWeights weights;
  const double scale = std::sqrt(3.0 / kHidden);
  weights.add("model.embed_tokens.weight", {kTinyVocab, kHidden}, 1);
  weights.add("model.norm.weight", {kHidden}, 0);
  weights.add("lm_head.weight", {kTinyVocab, kHidden}, 3 * scale);
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string at = layer;
    weights.add(at + "input_layernorm.weight", {kHidden}, 0);
    weights.add(at + "post_attention_layernorm.weight", {kHidden}, 0);
    weights.add(at + "self_attn.q_proj.weight", {kHidden, kHidden}, scale);
    weights.add(at + "self_attn.k_proj.weight", {kKv, kHidden}, scale);
    weights.add(at + "self_attn.v_proj.weight", {kKv, kHidden}, scale);
    weights.add(at + "self_attn.o_proj.weight", {kHidden, kHidden}, scale);
    weights.add(at + "mlp.gate_proj.weight", {kFfn, kHidden}, scale);
    weights.add(at + "mlp.up_proj.weight", {kFfn, kHidden}, scale);
    weights.add(at + "mlp.down_proj.weight", {kHidden, kFfn}, scale);
  }
  return weights.build();
}

// Writes the model into `folder` and returns its path.
inline std::string write_tiny_model(const TestFolder& folder, std::string_view name = "tiny",
                                    bool with_tokenizer = true, uint32_t context = kTinyContext) {
  const std::string at = std::string(name) + "/";
  folder.write(at + "config.json", nlohmann::json({{"architectures", {"LlamaForCausalLM"}},
                                                   {"model_type", "llama"},
                                                   {"vocab_size", kTinyVocab},
                                                   {"hidden_size", 64},
                                                   {"intermediate_size", 96},
                                                   {"num_hidden_layers", 2},
                                                   {"num_attention_heads", 4},
                                                   {"num_key_value_heads", 2},
                                                   {"max_position_embeddings", context},
                                                   {"rms_norm_eps", 1e-5},
                                                   {"rope_theta", 10000.0},
                                                   {"hidden_act", "silu"},
                                                   {"tie_word_embeddings", false},
                                                   {"eos_token_id", kTinyEnd}})
                                       .dump());
  folder.write(at + "model.safetensors", tiny_weights());
  if (with_tokenizer) folder.write(at + "tokenizer.json", tiny_tokenizer());
  return folder / name;
}

}  // namespace skein::testing
