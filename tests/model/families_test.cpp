// Specs of real configs (shortened) that no golden folder reaches.
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/descriptions.h"
#include "model/goldens.h"
#include "model/model_writer.h"

namespace skein {
namespace {

using testing::from_config;
using testing::from_gguf;
using testing::gguf_config;
using testing::GgufWriter;
using testing::small_config;
using testing::with_embedding;
using Type = gguf::ValueType;

ModelSpec spec_of(const Result<ModelDescription>& description) {
  EXPECT_TRUE(description.ok()) << description.message();
  return description.ok() ? description->spec : ModelSpec{};
}

std::vector<uint32_t> windows(const ModelSpec& spec) {
  std::vector<uint32_t> out;
  for (const LayerSpec& layer : spec.layers) out.push_back(layer.window);
  return out;
}

void expect_same(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(windows(a), windows(b));
  ASSERT_EQ(a.ropes.size(), b.ropes.size());
  for (size_t i = 0; i < a.ropes.size(); ++i) {
    EXPECT_EQ(a.ropes[i].frequencies, b.ropes[i].frequencies);
    EXPECT_EQ(a.ropes[i].magnitude, b.ropes[i].magnitude);
  }
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].rope, b.layers[i].rope);
    EXPECT_EQ(a.layers[i].experts, b.layers[i].experts);
  }
  EXPECT_EQ(a.attention_scale, b.attention_scale);
  EXPECT_EQ(a.head_dim, b.head_dim);
}

// What transformers wrote before version 5: rope_theta and rope_scaling beside each other, no list
// of layer types.
Json in_old_words(Json config) {
  Json rope = config["rope_parameters"];
  config.erase("rope_parameters");
  config.erase("layer_types");
  if (rope.contains("full_attention")) {
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"];
    rope = rope["full_attention"];
  }
  config["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  if (rope.contains("partial_rotary_factor")) {
    config["partial_rotary_factor"] = rope["partial_rotary_factor"];
    rope.erase("partial_rotary_factor");
  }
  rope["type"] = rope["rope_type"];
  rope.erase("rope_type");
  config["rope_scaling"] = rope["type"] == "default" ? Json(nullptr) : rope;
  return config;
}

TEST(Families, OldKeysGiveTheSpecOfNewOnes) {
  for (const testing::Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    std::ifstream in(golden.folder + "/config.json");
    if (!in) continue;
    const Json config = Json::parse(in);
    expect_same(spec_of(from_config(in_old_words(config))), spec_of(from_config(config)));
  }
}

constexpr const char* kPhi35 = R"({
  "model_type": "phi3", "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4,
  "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 100, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
  "rope_theta": 10000.0, "sliding_window": 262144, "partial_rotary_factor": 0.5,
  "rope_scaling": {"type": "longrope", "short_factor": [1, 2, 4], "long_factor": [2, 8, 16]}})";

TEST(Families, LongropeIsChosenByTheServedContext) {
  const auto plain = make_rope({.theta = 1e4, .dims = 6});
  for (const auto& [context, factors] : std::vector<std::pair<uint32_t, std::vector<float>>>{
           {0, {2, 8, 16}}, {4097, {2, 8, 16}}, {4096, {1, 2, 4}}, {100, {1, 2, 4}}}) {
    const ModelSpec spec = spec_of(from_config(Json::parse(kPhi35), context));
    ASSERT_EQ(spec.ropes.size(), 1u);
    ASSERT_EQ(spec.ropes[0].frequencies.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_FLOAT_EQ(spec.ropes[0].frequencies[i], plain->frequencies[i] / factors[i]) << context;
    }
    EXPECT_FLOAT_EQ(spec.ropes[0].magnitude, 1.1902380714238083F) << context;
    EXPECT_EQ(windows(spec), std::vector<uint32_t>{262'144});
  }
}

TEST(Families, LongropeOfGguf) {
  const auto plain = make_rope({.theta = 1e4, .dims = 6});
  GgufWriter w = gguf_config("phi3");
  w.u32("phi3.rope.dimension_count", 6)
      .u32("phi3.rope.scaling.original_context_length", 4096)
      .u32("phi3.attention.sliding_window", 2047);
  const std::vector<std::byte> file =
      testing::gguf_of(w, {testing::f32("token_embd.weight", {2, 64}, std::vector<float>(128)),
                           testing::f32("rope_factors_long.weight", {3}, {2, 8, 16}),
                           testing::f32("rope_factors_short.weight", {3}, {1, 2, 4})});
  for (const auto& [context, factors] : std::vector<std::pair<uint32_t, std::vector<float>>>{
           {0, {2, 8, 16}}, {4097, {2, 8, 16}}, {4096, {1, 2, 4}}}) {
    const ModelSpec spec = spec_of(from_gguf(file, context));
    ASSERT_EQ(spec.ropes.size(), 1u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_FLOAT_EQ(spec.ropes[0].frequencies[i], plain->frequencies[i] / factors[i]) << context;
    }
    EXPECT_FLOAT_EQ(spec.ropes[0].magnitude, 1.1902380714238083F);
    EXPECT_EQ(windows(spec), (std::vector<uint32_t>{2047, 2047}));
  }
  GgufWriter without = gguf_config("phi3");
  without.string("phi3.rope.scaling.type", "longrope");
  EXPECT_EQ(from_gguf(with_embedding(without)).status().code(), Code::kNotFound);
}

constexpr const char* kGemma3Multimodal = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                  "num_hidden_layers": 34, "sliding_window": 1024,
                  "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
  "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}})";

TEST(Families, Gemma3InsideAMultimodalFolder) {
  const auto description = from_config(Json::parse(kGemma3Multimodal));
  const ModelSpec spec = spec_of(description);
  EXPECT_EQ(spec.vocab, 262'208u);
  EXPECT_EQ(spec.heads, 8u);
  EXPECT_EQ(spec.kv_heads, 4u);
  EXPECT_EQ(spec.head_dim, 256u);
  EXPECT_EQ(spec.context, 131'072u);
  EXPECT_FLOAT_EQ(spec.attention_scale, 1.0F / 16);
  EXPECT_FLOAT_EQ(spec.embedding_scale, 50.5964426F);
  EXPECT_TRUE(spec.tied_head);
  ASSERT_EQ(spec.layers.size(), 34u);
  EXPECT_EQ(spec.layers[4].window, 1024u);
  EXPECT_EQ(spec.layers[5].window, 0u);
  EXPECT_EQ(spec.layers[33].window, 1024u);
  const RopeSpec& full = spec.ropes[*spec.layers[5].rope];
  const RopeSpec& sliding = spec.ropes[*spec.layers[0].rope];
  EXPECT_FLOAT_EQ(full.frequencies[0], 0.125F);
  EXPECT_FLOAT_EQ(full.frequencies[64], 0.125F * 1e-3F);
  EXPECT_FLOAT_EQ(sliding.frequencies[0], 1);
  EXPECT_FLOAT_EQ(sliding.frequencies[64], 0.01F);
}

TEST(Families, GptOssAsItWasPublished) {
  const ModelSpec spec = spec_of(from_config(Json::parse(R"({
    "model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4, "head_dim": 64,
    "hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_hidden_layers": 2, "num_key_value_heads": 8,
    "num_local_experts": 32, "quantization_config": {"quant_method": "mxfp4"},
    "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
    "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0,
    "tie_word_embeddings": false, "vocab_size": 201088})")));
  EXPECT_EQ(spec.experts->count, 32u);
  EXPECT_EQ(spec.experts->used, 4u);
  EXPECT_EQ(spec.experts->router, RouterKind::kTopThenSoftmax);
  EXPECT_EQ(windows(spec), (std::vector<uint32_t>{128, 0}));
  EXPECT_FLOAT_EQ(spec.ropes[0].frequencies[9], 0.0317056962F);
  EXPECT_FLOAT_EQ(spec.ropes[0].magnitude, 1.34657359F);
  EXPECT_FLOAT_EQ(spec.activation.alpha, 1.702F);
  EXPECT_FALSE(spec.tied_head);
}

TEST(Families, QwenSlidesInItsLastLayersIfAtAll) {
  Json config = small_config("qwen2");
  config["sliding_window"] = 32;
  config["max_window_layers"] = 3;
  EXPECT_EQ(windows(spec_of(from_config(config))), (std::vector<uint32_t>{0, 0, 0, 0}));
  config["use_sliding_window"] = true;
  EXPECT_EQ(windows(spec_of(from_config(config))), (std::vector<uint32_t>{0, 0, 0, 32}));
  config["model_type"] = "qwen3";
  EXPECT_EQ(windows(spec_of(from_config(config))), (std::vector<uint32_t>{0, 0, 0, 32}));
}

TEST(Families, Qwen3MoeMayHaveDenseLayers) {
  Json config = small_config("qwen3_moe");
  config.update({{"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 32},
                 {"decoder_sparse_step", 2},
                 {"mlp_only_layers", {3}}});
  const ModelSpec spec = spec_of(from_config(config));
  std::vector<bool> experts;
  for (const LayerSpec& layer : spec.layers) experts.push_back(layer.experts);
  EXPECT_EQ(experts, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(spec.experts->router, RouterKind::kSoftmaxThenTop);
  EXPECT_EQ(spec.ffn, 128u);
  EXPECT_EQ(spec.experts->ffn, 32u);
}

TEST(Families, SmolLm3LeavesOutEveryFourthRopeByDefault) {
  const ModelSpec spec = spec_of(from_config(small_config("smollm3")));
  EXPECT_TRUE(spec.layers[2].rope.has_value());
  EXPECT_FALSE(spec.layers[3].rope.has_value());
}

TEST(Families, StableLm12B) {
  Json config = small_config("stablelm");
  config.update(
      {{"use_parallel_residual", true}, {"qk_layernorm", true}, {"layer_norm_eps", 1e-5}});
  const auto description = from_config(config);
  const ModelSpec spec = spec_of(description);
  EXPECT_TRUE(spec.parallel_residual);
  EXPECT_FALSE(spec.pre_ffn_norm);
  EXPECT_EQ(spec.qk_norm, QkNorm::kPerHeadOwn);
  EXPECT_EQ(spec.ropes[0].frequencies.size(), 2u);  // a quarter of 16 dimensions, by default
}

TEST(Families, GgufScalesItsRopeAsItsKeysSay) {
  GgufWriter linear = gguf_config("qwen2");
  linear.string("qwen2.rope.scaling.type", "linear")
      .scalar("qwen2.rope.scaling.factor", Type::kFloat32, 4.0F);
  EXPECT_FLOAT_EQ(spec_of(from_gguf(with_embedding(linear))).ropes[0].frequencies[0], 0.25F);

  GgufWriter yarn = gguf_config("qwen2");
  yarn.string("qwen2.rope.scaling.type", "yarn")
      .u32("qwen2.attention.key_length", 128)
      .u32("qwen2.attention.value_length", 128)
      .scalar("qwen2.rope.freq_base", Type::kFloat32, 1e6F)
      .scalar("qwen2.rope.scaling.factor", Type::kFloat32, 4.0F)
      .u32("qwen2.rope.scaling.original_context_length", 32'768);
  const RopeSpec rope = spec_of(from_gguf(with_embedding(yarn))).ropes[0];
  EXPECT_FLOAT_EQ(rope.frequencies[30], 0.00106436098F);
  EXPECT_FLOAT_EQ(rope.magnitude, 1.13862944F);

  GgufWriter unknown = gguf_config("qwen2");
  unknown.string("qwen2.rope.scaling.type", "spiral");
  EXPECT_EQ(from_gguf(with_embedding(unknown)).status().code(), Code::kUnimplemented);
}

TEST(Families, Gemma2OfGguf) {
  GgufWriter w = gguf_config("gemma2");
  w.u32("gemma2.attention.sliding_window", 48)
      .scalar("gemma2.attn_logit_softcapping", Type::kFloat32, 20.0F)
      .scalar("gemma2.final_logit_softcapping", Type::kFloat32, 10.0F);
  const ModelSpec spec = spec_of(from_gguf(with_embedding(w)));
  EXPECT_EQ(windows(spec), (std::vector<uint32_t>{48, 0}));
  EXPECT_EQ(spec.attention_softcap, 20);
  EXPECT_EQ(spec.logit_softcap, 10);
  EXPECT_EQ(spec.embedding_scale, 8);
  EXPECT_EQ(spec.attention_scale, 0.25F);
  GgufWriter large = gguf_config("gemma2", 46);  // the 27B: head size 32, scale of 64 / 4
  large.u32("gemma2.attention.key_length", 32).u32("gemma2.attention.value_length", 32);
  EXPECT_EQ(spec_of(from_gguf(with_embedding(large))).attention_scale, 0.25F);
}

TEST(Families, NumbersPerLayerAreTakenWhenTheyAreOne) {
  const auto with = [](const std::vector<uint32_t>& heads) {
    GgufWriter w;
    w.string("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .u32("llama.context_length", 2048)
        .u32("llama.embedding_length", 64)
        .u32("llama.feed_forward_length", 128)
        .u32("llama.attention.head_count", 4)
        .array("llama.attention.head_count_kv", Type::kUint32, heads);
    return from_gguf(with_embedding(w));
  };
  EXPECT_EQ(spec_of(with({2, 2})).kv_heads, 2u);
  EXPECT_EQ(with({2, 4}).status().code(), Code::kUnimplemented);
  EXPECT_EQ(with({}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace skein
