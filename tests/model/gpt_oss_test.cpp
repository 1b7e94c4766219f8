// gpt-oss with MXFP4 experts: a folder's blocks, plain numbers, and GGUF's blocks are the same
// model.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

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

constexpr std::string_view kGptConfig = R"({"model_type": "gpt_oss", "vocab_size": 20,
  "hidden_size": 64, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_local_experts": 3,
  "experts_per_token": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
  "sliding_window": 8, "rope_theta": 150000, "tie_word_embeddings": false,
  "quantization_config": {"quant_method": "mxfp4"},
  "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1,
                   "original_max_position_embeddings": 1024, "truncate": false}})";

// MXFP4 by its values: code 0..15 of each element and a scale per 32.
struct Mxfp4 {
  uint64_t rows, columns;
  std::vector<uint8_t> codes, scales;

  Mxfp4(uint32_t stream, uint64_t rows, uint64_t columns) : rows(rows), columns(columns) {
    for (const float x : numbers(stream, rows * columns)) {
      codes.push_back(static_cast<uint8_t>((x + 0.5F) * 16));
    }
    for (const float x : numbers(stream + 1000, rows * columns / 32)) {
      scales.push_back(static_cast<uint8_t>(122 + (x + 0.5F) * 4));
    }
  }
  uint8_t code(uint64_t row, uint64_t column) const { return codes[row * columns + column]; }

  std::vector<std::byte> hf_blocks() const {
    std::vector<std::byte> out;
    for (size_t i = 0; i < codes.size(); i += 2)
      out.push_back(std::byte(codes[i] | codes[i + 1] << 4));
    return out;
  }
  std::vector<std::byte> hf_scales() const {
    std::vector<std::byte> out;
    for (const uint8_t scale : scales) out.push_back(std::byte(scale));
    return out;
  }
  void append_gguf_row(uint64_t row, std::vector<std::byte>& out) const {
    for (uint64_t b = 0; b < columns / 32; ++b) {
      out.push_back(std::byte(scales[row * columns / 32 + b]));
      for (uint64_t j = 0; j < 16; ++j) {
        out.push_back(std::byte(code(row, 32 * b + j) | code(row, 32 * b + j + 16) << 4));
      }
    }
  }
};

constexpr uint64_t kExperts = 3, kHidden = 64, kInner = 32;

struct GptTensors {
  std::vector<TensorData> hf, gguf;
  uint32_t stream = 0;

  void both(const std::string& hf_name, const std::string& gguf_name, std::vector<uint64_t> shape,
            float offset = 0) {
    std::vector<float> values = numbers(stream++, elements_of(shape), offset);
    if (offset == 0) {
      for (float& value : values) value /= 4;
    }
    hf.push_back(f32(hf_name, shape, values));
    gguf.push_back(f32(gguf_name, shape, values));
  }

  // Rows of gate and up alternate in the folder.
  void gate_up(const std::string& hf_name, const std::string& layer) {
    const Mxfp4 all(stream++, kExperts * 2 * kInner, kHidden);
    const std::vector<float> bias = numbers(stream++, kExperts * 2 * kInner);
    hf.push_back({hf_name + "_blocks",
                  ElementType::kU8,
                  {kExperts, 2 * kInner, kHidden / 32, 16},
                  all.hf_blocks()});
    hf.push_back({hf_name + "_scales",
                  ElementType::kU8,
                  {kExperts, 2 * kInner, kHidden / 32},
                  all.hf_scales()});
    hf.push_back(f32(hf_name + "_bias", {kExperts, 2 * kInner}, bias));
    for (uint64_t part = 0; part < 2; ++part) {
      std::vector<std::byte> rows;
      std::vector<float> biases;
      for (uint64_t row = part; row < kExperts * 2 * kInner; row += 2) {
        all.append_gguf_row(row, rows);
        biases.push_back(bias[row]);
      }
      const std::string name = layer + (part == 0 ? "ffn_gate_exps" : "ffn_up_exps");
      gguf.push_back({name + ".weight", ElementType::kMXFP4, {kExperts, kInner, kHidden}, rows});
      gguf.push_back(f32(name + ".bias", {kExperts, kInner}, biases));
    }
  }

  void down(const std::string& hf_name, const std::string& layer) {
    const Mxfp4 all(stream++, kExperts * kHidden, kInner);
    const std::vector<float> bias = numbers(stream++, kExperts * kHidden);
    hf.push_back({hf_name + "_blocks",
                  ElementType::kU8,
                  {kExperts, kHidden, kInner / 32, 16},
                  all.hf_blocks()});
    hf.push_back(
        {hf_name + "_scales", ElementType::kU8, {kExperts, kHidden, kInner / 32}, all.hf_scales()});
    hf.push_back(f32(hf_name + "_bias", {kExperts, kHidden}, bias));
    std::vector<std::byte> rows;
    for (uint64_t row = 0; row < kExperts * kHidden; ++row) all.append_gguf_row(row, rows);
    gguf.push_back(
        {layer + "ffn_down_exps.weight", ElementType::kMXFP4, {kExperts, kHidden, kInner}, rows});
    gguf.push_back(f32(layer + "ffn_down_exps.bias", {kExperts, kHidden}, bias));
  }
};

GptTensors gpt_tensors() {
  GptTensors t;
  t.both("model.embed_tokens.weight", "token_embd.weight", {20, 64});
  t.both("lm_head.weight", "output.weight", {20, 64});
  t.both("model.norm.weight", "output_norm.weight", {64}, 1);
  for (const std::string number : {"0", "1"}) {
    const std::string hf = "model.layers." + number + ".";
    const std::string gguf = "blk." + number + ".";
    t.both(hf + "input_layernorm.weight", gguf + "attn_norm.weight", {64}, 1);
    t.both(hf + "post_attention_layernorm.weight", gguf + "post_attention_norm.weight", {64}, 1);
    const std::pair<const char*, const char*> projections[] = {{"q_proj", "attn_q"},
                                                               {"k_proj", "attn_k"},
                                                               {"v_proj", "attn_v"},
                                                               {"o_proj", "attn_output"}};
    for (const auto& [ours, theirs] : projections) {
      const uint64_t rows = theirs[5] == 'k' || theirs[5] == 'v' ? 32 : 64;
      t.both(hf + "self_attn." + ours + ".weight", gguf + theirs + ".weight", {rows, 64});
      t.both(hf + "self_attn." + ours + ".bias", gguf + theirs + ".bias", {rows});
    }
    t.both(hf + "self_attn.sinks", gguf + "attn_sinks.weight", {4});
    t.both(hf + "mlp.router.weight", gguf + "ffn_gate_inp.weight", {kExperts, 64});
    t.both(hf + "mlp.router.bias", gguf + "ffn_gate_inp.bias", {kExperts});
    t.gate_up(hf + "mlp.experts.gate_up_proj", gguf);
    t.down(hf + "mlp.experts.down_proj", gguf);
  }
  return t;
}

// The folder with its experts unpacked to F32 [experts, inputs, outputs].
std::vector<TensorData> unpacked(const std::vector<TensorData>& tensors) {
  std::vector<TensorData> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorData& tensor = tensors[i];
    if (!tensor.name.ends_with("_blocks")) {
      if (!tensor.name.ends_with("_scales")) out.push_back(tensor);
      continue;
    }
    const uint64_t rows = tensor.shape[1];
    const uint64_t columns = tensor.shape[2] * 32;
    constexpr float kValues[] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                 -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    std::vector<float> values(kExperts * rows * columns);
    for (uint64_t e = 0; e < kExperts; ++e) {
      for (uint64_t r = 0; r < rows; ++r) {
        for (uint64_t c = 0; c < columns; ++c) {
          const uint64_t at = (e * rows + r) * columns + c;
          const auto code = static_cast<uint8_t>(tensor.bytes[at / 2]) >> (at % 2 * 4) & 15;
          const auto scale = static_cast<uint8_t>(tensors[i + 1].bytes[at / 32]);
          values[(e * columns + c) * rows + r] = std::ldexp(kValues[code], scale - 127);
        }
      }
    }
    out.push_back(
        f32(tensor.name.substr(0, tensor.name.size() - 7), {kExperts, columns, rows}, values));
  }
  return out;
}

TEST(ModelFiles, GptOssIsTheSameAsBlocksAsPlainNumbersAndAsGguf) {
  const TestFolder folder;
  const GptTensors tensors = gpt_tensors();
  GgufWriter writer;
  writer.string("general.architecture", "gpt-oss")
      .u32("gpt-oss.block_count", 2)
      .u32("gpt-oss.context_length", 4096)
      .u32("gpt-oss.embedding_length", 64)
      .u32("gpt-oss.feed_forward_length", 32)
      .u32("gpt-oss.expert_feed_forward_length", 32)
      .u32("gpt-oss.expert_count", 3)
      .u32("gpt-oss.expert_used_count", 2)
      .u32("gpt-oss.attention.head_count", 4)
      .u32("gpt-oss.attention.head_count_kv", 2)
      .u32("gpt-oss.attention.key_length", 16)
      .u32("gpt-oss.attention.value_length", 16)
      .u32("gpt-oss.attention.sliding_window", 8)
      .scalar("gpt-oss.attention.layer_norm_rms_epsilon", Type::kFloat32, 1e-5F)
      .scalar("gpt-oss.rope.freq_base", Type::kFloat32, 150'000.0F)
      .string("gpt-oss.rope.scaling.type", "yarn")
      .scalar("gpt-oss.rope.scaling.factor", Type::kFloat32, 4.0F)
      .u32("gpt-oss.rope.scaling.original_context_length", 1024);
  const std::vector<TokenId> tokens = {3, 7, 1, 11, 0, 19, 5, 5, 2, 8, 13, 4};
  const Logits blocks = logits_of(write_folder(folder, "blocks", kGptConfig, tensors.hf), tokens);
  const Logits plain =
      logits_of(write_folder(folder, "plain", kGptConfig, unpacked(tensors.hf)), tokens);
  const Logits gguf =
      logits_of(folder.write("model.gguf", testing::gguf_of(writer, tensors.gguf)), tokens);
  ASSERT_FALSE(blocks.empty());
  EXPECT_EQ(blocks, gguf);
  EXPECT_EQ(blocks, plain);
}

}  // namespace
}  // namespace skein
