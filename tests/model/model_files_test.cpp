// Whole models in forms that no golden folder has: each against another form of the same weights,
// or against numbers computed elsewhere.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/test_folder.h"
#include "model/goldens.h"
#include "model/model_writer.h"
#include "model/write_and_run.h"

namespace skein {
namespace {

using testing::elements_of;
using testing::f32;
using testing::GgufWriter;
using testing::Logits;
using testing::logits_of;
using testing::numbers;
using testing::TensorData;
using testing::TestFolder;
using testing::write_folder;
using Type = gguf::ValueType;

// StableLM 2 12B's form: attention and feed-forward side by side, a norm per head.

constexpr std::string_view kStableConfig = R"({"model_type": "stablelm", "vocab_size": 12,
  "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
  "num_hidden_layers": 2, "max_position_embeddings": 64, "layer_norm_eps": 1e-5,
  "rope_theta": 10000, "partial_rotary_factor": 0.5, "use_parallel_residual": true,
  "qk_layernorm": true, "tie_word_embeddings": false})";

// By NumPy in float64, from the same numbers.
constexpr float kStableLogits[] = {-0.3266504F, 0.2500285F,  0.5525666F,  1.2576703F,
                                   0.2669907F,  -1.2196134F, -0.1976812F, 0.3161029F,
                                   -0.8712374F, -0.9014838F, -0.8779795F, 1.0559565F};

struct StableTensors {
  std::vector<TensorData> hf, gguf;

  void both(const std::string& hf_name, const std::string& gguf_name, std::vector<uint64_t> shape,
            float offset = 0) {
    const std::vector<float> values = next(shape, offset);
    hf.push_back(f32(hf_name, shape, values));
    gguf.push_back(f32(gguf_name, shape, values));
  }
  std::vector<float> next(const std::vector<uint64_t>& shape, float offset) {
    return numbers(stream++, elements_of(shape), offset);
  }
  // One tensor per head in a folder, one for all in GGUF.
  void head_norm(const std::string& hf_name, const std::string& gguf_name, uint64_t heads) {
    const std::vector<float> values = next({heads, 4}, 1);
    gguf.push_back(f32(gguf_name, {heads, 4}, values));
    for (uint64_t h = 0; h < heads; ++h) {
      hf.push_back(f32(hf_name + std::to_string(h) + ".weight", {4},
                       {values.begin() + static_cast<std::ptrdiff_t>(4 * h),
                        values.begin() + static_cast<std::ptrdiff_t>(4 * h + 4)}));
    }
  }
  uint32_t stream = 0;
};

StableTensors stable_tensors() {
  StableTensors t;
  t.both("model.embed_tokens.weight", "token_embd.weight", {12, 16});
  t.both("lm_head.weight", "output.weight", {12, 16});
  t.both("model.norm.weight", "output_norm.weight", {16}, 1);
  t.both("model.norm.bias", "output_norm.bias", {16});
  for (const std::string layer : {"0", "1"}) {
    const std::string hf = "model.layers." + layer + ".";
    const std::string gguf = "blk." + layer + ".";
    t.both(hf + "input_layernorm.weight", gguf + "attn_norm.weight", {16}, 1);
    t.both(hf + "input_layernorm.bias", gguf + "attn_norm.bias", {16});
    t.both(hf + "self_attn.q_proj.weight", gguf + "attn_q.weight", {16, 16});
    t.both(hf + "self_attn.k_proj.weight", gguf + "attn_k.weight", {8, 16});
    t.both(hf + "self_attn.v_proj.weight", gguf + "attn_v.weight", {8, 16});
    t.both(hf + "self_attn.o_proj.weight", gguf + "attn_output.weight", {16, 16});
    t.head_norm(hf + "self_attn.q_layernorm.norms.", gguf + "attn_q_norm.weight", 4);
    t.head_norm(hf + "self_attn.k_layernorm.norms.", gguf + "attn_k_norm.weight", 2);
    t.both(hf + "mlp.gate_proj.weight", gguf + "ffn_gate.weight", {24, 16});
    t.both(hf + "mlp.up_proj.weight", gguf + "ffn_up.weight", {24, 16});
    t.both(hf + "mlp.down_proj.weight", gguf + "ffn_down.weight", {16, 24});
  }
  return t;
}

TEST(ModelFiles, StableLm12BGivesTheLogitsOfNumPy) {
  const TestFolder folder;
  const StableTensors tensors = stable_tensors();
  GgufWriter writer;
  writer.string("general.architecture", "stablelm")
      .u32("stablelm.block_count", 2)
      .u32("stablelm.context_length", 64)
      .u32("stablelm.embedding_length", 16)
      .u32("stablelm.feed_forward_length", 24)
      .u32("stablelm.attention.head_count", 4)
      .u32("stablelm.attention.head_count_kv", 2)
      .u32("stablelm.rope.dimension_count", 2)
      .scalar("stablelm.use_parallel_residual", Type::kBool, uint8_t{1})
      .scalar("stablelm.attention.layer_norm_epsilon", Type::kFloat32, 1e-5F);
  const std::vector<TokenId> tokens = {3, 7, 1, 11, 0};
  const Logits hf = logits_of(write_folder(folder, "hf", kStableConfig, tensors.hf), tokens);
  const Logits gguf =
      logits_of(folder.write("model.gguf", testing::gguf_of(writer, tensors.gguf)), tokens);
  ASSERT_FALSE(hf.empty());
  for (size_t i = 0; i < std::size(kStableLogits); ++i) {
    EXPECT_NEAR(hf.back()[i], kStableLogits[i], 1e-5) << i;
  }
  EXPECT_EQ(gguf, hf);
}

// Gemma 3 inside a multimodal folder, both ways of naming it.

TEST(ModelFiles, Gemma3InsideAMultimodalFolderIsTheSame) {
  const TestFolder folder;
  for (const testing::Golden& golden : testing::goldens()) {
    if (golden.name != "gemma3") continue;
    const auto source = open_model(golden.folder);
    ASSERT_TRUE(source.ok()) << source.message();
    const std::vector<TokenId>& tokens = golden.cases[1].prompt;
    const Logits plain = logits_of(golden.folder, tokens);
    for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
      std::vector<TensorData> tensors = {f32("vision_tower.patch.weight", {2}, {1, 2})};
      for (const NamedTensor& tensor : source->tensors()) {
        const auto dims = tensor.view.shape.dims();
        tensors.push_back({prefix + tensor.name.substr(std::string("model.").size()),
                           tensor.view.type,
                           {dims.begin(), dims.end()},
                           {tensor.view.bytes.begin(), tensor.view.bytes.end()}});
      }
      const Json config = {{"model_type", "gemma3"}, {"text_config", source->documents().config}};
      EXPECT_EQ(logits_of(write_folder(folder, prefix, config.dump(), tensors), tokens), plain);
    }
  }
}

}  // namespace
}  // namespace skein
