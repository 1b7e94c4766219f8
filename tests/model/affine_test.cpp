// Folders that MLX has quantized, against folders of the same values in float32.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/write_and_run.h"

namespace skein {
namespace {

using testing::elements_of;
using testing::f32;
using testing::Logits;
using testing::logits_of;
using testing::numbers;
using testing::TensorData;
using testing::TestFolder;
using testing::write_folder;

constexpr uint64_t kGroup = 32;

// The same model twice.
struct Twins {
  std::vector<TensorData> packed, plain;
  uint32_t stream = 0;

  // Packs random values into `module`, and gives them back.
  std::vector<float> pack(const std::string& module, std::vector<uint64_t> shape) {
    const uint64_t count = elements_of(shape);
    std::vector<float> scales = numbers(stream++, count / kGroup);
    for (float& scale : scales) scale /= 16;
    const std::vector<float> biases = numbers(stream++, count / kGroup);
    const std::vector<float> random = numbers(stream++, count, 0.5F);
    std::vector<uint32_t> words(count / 8);
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto q = static_cast<uint32_t>(random[i] * 16);
      words[i / 8] |= q << (i % 8 * 4);
      const float product = scales[i / kGroup] * static_cast<float>(q);
      values[i] = product + biases[i / kGroup];
    }
    const uint64_t columns = shape.back();
    const auto bytes = std::as_bytes(std::span(words));
    shape.back() = columns / 8;
    packed.push_back({module + ".weight", ElementType::kU32, shape, {bytes.begin(), bytes.end()}});
    shape.back() = columns / kGroup;
    packed.push_back(f32(module + ".scales", shape, scales));
    packed.push_back(f32(module + ".biases", shape, biases));
    return values;
  }

  void matrix(const std::string& module, uint64_t rows, uint64_t columns) {
    plain.push_back(f32(module + ".weight", {rows, columns}, pack(module, {rows, columns})));
  }

  // One module for all experts where it is packed, one for each where it is not.
  void experts(const std::string& block, const std::string& name, uint64_t count, uint64_t rows,
               uint64_t columns) {
    const std::vector<float> values = pack(block + "switch_mlp." + name, {count, rows, columns});
    for (uint64_t e = 0; e < count; ++e) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(e * rows * columns);
      plain.push_back(f32(block + "experts." + std::to_string(e) + "." + name + ".weight",
                          {rows, columns},
                          {first, first + static_cast<std::ptrdiff_t>(rows * columns)}));
    }
  }

  void norm(const std::string& name, uint64_t width) {
    const TensorData tensor = f32(name + ".weight", {width}, numbers(stream++, width, 1));
    packed.push_back(tensor);
    plain.push_back(tensor);
  }

  void all_but_feed_forward() {
    const std::string layer = "model.layers.0.";
    matrix("model.embed_tokens", 20, 64);
    norm("model.norm", 64);
    norm(layer + "input_layernorm", 64);
    norm(layer + "post_attention_layernorm", 64);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      matrix(layer + "self_attn." + name, 64, 64);
    }
  }

  void expect_equal(Json config) const {
    config.update({{"vocab_size", 20},
                   {"hidden_size", 64},
                   {"num_attention_heads", 4},
                   {"intermediate_size", 96},
                   {"num_hidden_layers", 1},
                   {"max_position_embeddings", 64}});
    const TestFolder folder;
    const std::vector<TokenId> tokens = {3, 7, 1, 11, 0};
    const Logits wanted = logits_of(write_folder(folder, "plain", config.dump(), plain), tokens);
    config["quantization"] = {{"bits", 4}, {"group_size", kGroup}};
    const Logits got = logits_of(write_folder(folder, "packed", config.dump(), packed), tokens);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got, wanted);
  }
};

TEST(Affine, AFolderIsTheFolderOfItsValues) {
  Twins twins;
  twins.all_but_feed_forward();
  twins.matrix("model.layers.0.mlp.gate_proj", 96, 64);
  twins.matrix("model.layers.0.mlp.up_proj", 96, 64);
  twins.matrix("model.layers.0.mlp.down_proj", 64, 96);
  twins.expect_equal({{"model_type", "llama"}});
}

TEST(Affine, StackedExpertsAreTheExpertsOneByOne) {
  Twins twins;
  twins.all_but_feed_forward();
  const std::string block = "model.layers.0.mlp.";
  twins.norm("model.layers.0.self_attn.q_norm", 16);
  twins.norm("model.layers.0.self_attn.k_norm", 16);
  twins.matrix(block + "gate", 4, 64);
  twins.experts(block, "gate_proj", 4, 32, 64);
  twins.experts(block, "up_proj", 4, 32, 64);
  twins.experts(block, "down_proj", 4, 64, 32);
  twins.expect_equal({{"model_type", "qwen3_moe"},
                      {"num_experts", 4},
                      {"num_experts_per_tok", 2},
                      {"moe_intermediate_size", 32}});
}

}  // namespace
}  // namespace skein
