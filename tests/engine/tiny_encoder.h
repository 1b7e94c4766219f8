// A BERT of numbers that any language can make (model/model_writer.h), as a folder or as a GGUF
// file. tests/engine/make_encoders.py makes the same one and records what transformers says of it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "format/test_folder.h"
#include "model/model_writer.h"

namespace skein::testing {

inline constexpr uint32_t kEncoderContext = 96;
inline constexpr uint32_t kEncoderHidden = 64;
inline constexpr uint32_t kEncoderFfn = 96;
inline constexpr uint32_t kEncoderLayers = 3;

inline std::vector<std::string> encoder_pieces() {
  std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (const char* before : {"", "##"}) {
    for (char c = 'a'; c <= 'z'; ++c) pieces.push_back(std::string(before) + c);
  }
  pieces.insert(pieces.end(), {".", ",", "?", "!", "中", "the", "cat", "dog", "sat", "##ing",
                               "##ed", "mat", "on"});
  return pieces;
}

inline std::string encoder_tokenizer() {
  using Json = nlohmann::json;
  Json vocab = Json::object(), added = Json::array();
  const std::vector<std::string> pieces = encoder_pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocab[pieces[i]] = i;
    if (pieces[i][0] == '[')
      added.push_back({{"id", i}, {"content", pieces[i]}, {"special", true}});
  }
  const auto special = [](const char* name) { return Json{{"SpecialToken", {{"id", name}}}}; };
  const Json single = {special("[CLS]"), Json{{"Sequence", {{"id", "A"}}}}, special("[SEP]")};
  return Json({{"added_tokens", added},
               {"normalizer", {{"type", "BertNormalizer"}, {"strip_accents", nullptr}}},
               {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"post_processor",
                {{"type", "TemplateProcessing"},
                 {"single", single},
                 {"special_tokens", {{"[CLS]", {{"ids", {2}}}}, {"[SEP]", {{"ids", {3}}}}}}}},
               {"decoder", {{"type", "WordPiece"}}},
               {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocab}}}})
      .dump();
}

// The tensors by the names of a folder, below `top`; with a head for one label where `ranks`.
inline std::vector<TensorData> encoder_tensors(const std::string& top, bool ranks) {
  const uint64_t width = kEncoderHidden;
  std::vector<TensorData> out;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape, uint32_t stream,
                       float offset = 0) {
    const uint64_t count = elements_of(shape);
    out.push_back(f32(name, std::move(shape), numbers(stream, count, offset)));
  };
  const auto linear = [&](const std::string& name, uint64_t outputs, uint64_t inputs,
                          uint32_t stream) {
    add(name + ".weight", {outputs, inputs}, stream);
    add(name + ".bias", {outputs}, stream + 1);
  };
  const auto norm = [&](const std::string& name, uint32_t stream) {
    add(name + ".weight", {width}, stream, 1);
    add(name + ".bias", {width}, stream + 1);
  };
  add(top + "embeddings.word_embeddings.weight", {encoder_pieces().size(), width}, 1);
  add(top + "embeddings.position_embeddings.weight", {kEncoderContext, width}, 2);
  add(top + "embeddings.token_type_embeddings.weight", {2, width}, 3);
  norm(top + "embeddings.LayerNorm", 4);
  for (uint32_t i = 0; i < kEncoderLayers; ++i) {
    const std::string layer = top + "encoder.layer." + std::to_string(i) + ".";
    const uint32_t stream = 10 + 20 * i;
    linear(layer + "attention.self.query", width, width, stream);
    linear(layer + "attention.self.key", width, width, stream + 2);
    linear(layer + "attention.self.value", width, width, stream + 4);
    linear(layer + "attention.output.dense", width, width, stream + 6);
    norm(layer + "attention.output.LayerNorm", stream + 8);
    linear(layer + "intermediate.dense", kEncoderFfn, width, stream + 10);
    linear(layer + "output.dense", width, kEncoderFfn, stream + 12);
    norm(layer + "output.LayerNorm", stream + 14);
  }
  linear(top + "pooler.dense", width, width, 200);
  if (ranks) linear("classifier", 1, width, 202);
  return out;
}

inline nlohmann::json encoder_config(bool ranks) {
  return {{"architectures", {ranks ? "BertForSequenceClassification" : "BertModel"}},
          {"model_type", "bert"},
          {"vocab_size", encoder_pieces().size()},
          {"hidden_size", kEncoderHidden},
          {"intermediate_size", kEncoderFfn},
          {"num_hidden_layers", kEncoderLayers},
          {"num_attention_heads", 4},
          {"max_position_embeddings", kEncoderContext},
          {"type_vocab_size", 2},
          {"layer_norm_eps", 1e-12},
          {"hidden_act", "gelu"}};
}

// `pooling` is a mode of sentence-transformers, as "cls_token"; empty: the files say nothing.
inline std::string write_tiny_encoder(const TestFolder& folder, const std::string& name,
                                      const std::string& pooling, bool ranks = false) {
  folder.write(name + "/config.json", encoder_config(ranks).dump());
  folder.write(name + "/tokenizer.json", encoder_tokenizer());
  folder.write(name + "/model.safetensors",
               safetensors_of(encoder_tensors(ranks ? "bert." : "", ranks)));
  if (!pooling.empty()) {
    folder.write(name + "/1_Pooling/config.json",
                 nlohmann::json({{"pooling_mode_" + pooling, true}}).dump());
  }
  return folder / name;
}

// What GGUF calls a tensor of a folder.
inline std::string gguf_name(std::string name) {
  const std::map<std::string, std::string> parts = {
      {"embeddings.word_embeddings", "token_embd"},
      {"embeddings.position_embeddings", "position_embd"},
      {"embeddings.token_type_embeddings", "token_types"},
      {"embeddings.LayerNorm", "token_embd_norm"},
      {"encoder.layer.", "blk."},
      {"attention.self.query", "attn_q"},
      {"attention.self.key", "attn_k"},
      {"attention.self.value", "attn_v"},
      {"attention.output.dense", "attn_output"},
      {"attention.output.LayerNorm", "attn_output_norm"},
      {"intermediate.dense", "ffn_up"},
      {".output.dense", ".ffn_down"},
      {".output.LayerNorm", ".layer_output_norm"},
      {"pooler.dense", "cls"},
      {"classifier", "cls.output"}};
  // The longer ones first: "attention.output.dense" has ".output.dense" in it.
  for (auto it = parts.begin(); it != parts.end(); ++it) {
    const bool is_last = it->first.starts_with(".output");
    if (is_last) continue;
    const size_t at = name.find(it->first);
    if (at != std::string::npos) name.replace(at, it->first.size(), it->second);
  }
  for (const char* last : {".output.dense", ".output.LayerNorm"}) {
    const size_t at = name.find(last);
    if (at != std::string::npos) name.replace(at, std::string_view(last).size(), parts.at(last));
  }
  return name;
}

inline std::string write_tiny_encoder_gguf(const TestFolder& folder, uint32_t pooling_type,
                                           bool ranks = false) {
  using Type = gguf::ValueType;
  std::vector<std::string> pieces = encoder_pieces();
  for (std::string& piece : pieces) {
    if (piece[0] == '[') continue;
    piece = piece.starts_with("##") ? piece.substr(2) : "▁" + piece;
  }
  GgufWriter writer;
  writer.string("general.architecture", "bert")
      .u32("bert.block_count", kEncoderLayers)
      .u32("bert.context_length", kEncoderContext)
      .u32("bert.embedding_length", kEncoderHidden)
      .u32("bert.feed_forward_length", kEncoderFfn)
      .u32("bert.attention.head_count", 4)
      .scalar<float>("bert.attention.layer_norm_epsilon", Type::kFloat32, 1e-12F)
      .scalar<uint8_t>("bert.attention.causal", Type::kBool, 0)
      .u32("bert.pooling_type", pooling_type)
      .string("tokenizer.ggml.model", "bert")
      .strings("tokenizer.ggml.tokens", pieces)
      .u32("tokenizer.ggml.unknown_token_id", 1)
      .u32("tokenizer.ggml.cls_token_id", 2)
      .u32("tokenizer.ggml.seperator_token_id", 3)
      .u32("tokenizer.ggml.padding_token_id", 0)
      .u32("tokenizer.ggml.mask_token_id", 4);
  std::vector<TensorData> tensors = encoder_tensors("", ranks);
  for (TensorData& tensor : tensors) tensor.name = gguf_name(tensor.name);
  return folder.write("bert.gguf", gguf_of(std::move(writer), tensors));
}

}  // namespace skein::testing
