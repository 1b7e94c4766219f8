// BERT: an encoder. Learned positions, two kinds of texts, norms of the sums, biases everywhere, a
// plain feed-forward with gelu. What it is asked for decides what stands behind the layers, and is
// read elsewhere (engine/loading/vectors.h): a pooler, a head for labels, one for masked words.
#include "format/quote.h"
#include "model/families/family.h"

namespace skein {
namespace {

void set_bert(ModelDescription& bert) {
  ModelSpec& spec = bert.spec;
  spec.norm = NormKind::kLayer;
  spec.pre_attention_norm = spec.pre_ffn_norm = false;
  spec.post_attention_norm = spec.post_ffn_norm = true;
  spec.tied_head = true;
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layers) layer.rope.reset();
  TensorNames& names = bert.names;
  names.qkv.bias = names.o.bias = names.gate_up.bias = names.down.bias = Bias::kRequired;
}

// The other form of gelu is what some files name for speed.
void set_activation(const HfConfig& config, ModelSpec& spec) {
  const std::string name = config.text_or("hidden_act", "gelu");
  if (name == "gelu") {
    spec.activation.kind = Activation::kGelu;
  } else if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    spec.activation.kind = Activation::kGeluTanh;
  } else {
    config.fail(
        unimplemented("config.json: hidden_act is {}, only 'gelu' and 'gelu_new' are known here",
                      in_quotes(name)));
  }
}

TensorNames bert_names(const std::string& top) {
  const std::string layer = top + "encoder.layer.{L}.";
  const std::string embeddings = top + "embeddings.";
  TensorNames names;
  names.embedding = embeddings + "word_embeddings";
  names.positions = embeddings + "position_embeddings";
  names.types = embeddings + "token_type_embeddings";
  names.embedding_norm = embeddings + "LayerNorm";
  names.qkv.modules = {layer + "attention.self.query", layer + "attention.self.key",
                       layer + "attention.self.value"};
  names.o.modules = {layer + "attention.output.dense"};
  names.post_attention_norm = layer + "attention.output.LayerNorm";
  names.gate_up.modules = {layer + "intermediate.dense"};
  names.down.modules = {layer + "output.dense"};
  names.post_ffn_norm = layer + "output.LayerNorm";
  for (const char* other : {"embeddings.position_ids", "embeddings.token_type_ids",
                            "pooler.dense.weight", "pooler.dense.bias"}) {
    names.others.push_back(top + other);
  }
  names.others.insert(names.others.end(), {"classifier.weight", "classifier.bias"});
  return names;
}

}  // namespace

ModelDescription bert_from_config(const HfConfig& config) {
  ModelDescription bert = hf_base(config);
  const bool is_bare = config.file().find("embeddings.word_embeddings.weight") != nullptr;
  bert.names = bert_names(is_bare ? "" : "bert.");
  set_bert(bert);
  set_activation(config, bert.spec);
  bert.spec.norm_epsilon = static_cast<float>(config.number_or("layer_norm_eps", 1e-12));
  bert.spec.encoder = EncoderSpec{config.count_or("type_vocab_size", 2)};
  if (const std::string positions = config.text_or("position_embedding_type", "absolute");
      positions != "absolute") {
    config.fail(
        unimplemented("config.json: position_embedding_type is {}, only 'absolute' is known",
                      in_quotes(positions)));
  }
  if (config.flag_or("is_decoder", false)) {
    config.fail(unimplemented("config.json: is_decoder, which this family is not"));
  }
  return bert;
}

ModelDescription bert_from_gguf(const GgufConfig& config) {
  ModelDescription bert = gguf_base(config);
  set_bert(bert);
  bert.spec.activation.kind = Activation::kGelu;
  bert.spec.norm_epsilon =
      static_cast<float>(config.number_or("attention.layer_norm_epsilon", 1e-12));
  const NamedTensor* types = config.file().find("token_types.weight");
  const bool has_types =
      types != nullptr && types->view.shape.rank() == 2 && types->view.shape[0] <= kMaxVocab;
  bert.spec.encoder = EncoderSpec{has_types ? static_cast<uint32_t>(types->view.shape[0]) : 1};
  TensorNames& names = bert.names;
  names.positions = "position_embd";
  names.types = "token_types";
  names.embedding_norm = "token_embd_norm";
  names.post_attention_norm = "blk.{L}.attn_output_norm";
  names.gate_up.modules = {"blk.{L}.ffn_up"};
  names.post_ffn_norm = "blk.{L}.layer_output_norm";
  names.others.insert(names.others.end(), {"cls.weight", "cls.bias"});
  return bert;
}

}  // namespace skein
