#include "format/summary.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::GgufWriter;
using testing::SafetensorsWriter;
using testing::TestFolder;
using Type = gguf::ValueType;

Result<ModelSummary> summary_of(const std::string& path) {
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  return summarize(source);
}

GgufWriter small_llama() {
  GgufWriter w;
  w.string("general.architecture", "llama")
      .u32("llama.block_count", 3)
      .u32("llama.embedding_length", 64)
      .u32("llama.attention.head_count", 4)
      .strings("tokenizer.ggml.tokens", {"a", "b", "<eos>"})
      .string("tokenizer.ggml.model", "gpt2")
      .u32("tokenizer.ggml.eos_token_id", 2)
      .scalar("tokenizer.ggml.eot_token_id", Type::kInt32, int32_t{-1})
      .tensor({.name = "n", .dims = {64}})
      .tensor({.name = "w", .dims = {64, 2}, .type = 2});
  return w;
}

TEST(Summary, Gguf) {
  const TestFolder folder;
  const auto summary = summary_of(folder.write("m.gguf", small_llama().build()));
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->architecture, "llama");
  EXPECT_EQ(summary->shape_of("kv_heads"), 4u);  // as many as heads
  EXPECT_EQ(summary->shape_of("head_size"), 16u);
  EXPECT_EQ(summary->shape_of("vocabulary"), 3u);  // as many as tokens
  EXPECT_EQ(summary->shape_of("context"), std::nullopt);
  EXPECT_EQ(summary->kv_bytes_per_token, 3u * 4 * (16 + 16) * 2);
  EXPECT_EQ(summary->parameters, 64u + 128);
  EXPECT_EQ(summary->tensor_bytes, 64u * 4 + 4 * 18);
  ASSERT_EQ(summary->types.size(), 2u);
  EXPECT_EQ(summary->types[0].type, "F32");
  EXPECT_EQ(summary->types[1].type, "Q4_0");
  EXPECT_EQ(summary->types[1].parameters, 128u);
  ASSERT_EQ(summary->tokenizer.special.size(), 2u);
  EXPECT_EQ(summary->tokenizer.special[0].role, "eos");
  EXPECT_EQ(summary->tokenizer.special[0].text, "<eos>");
  EXPECT_EQ(summary->tokenizer.special[1].id, -1);
  EXPECT_FALSE(summary->chat_template);
}

TEST(Summary, LayersMayDiffer) {
  const TestFolder folder;
  GgufWriter w = small_llama();
  w.array<int32_t>("llama.attention.head_count_kv", Type::kInt32, {4, 0, 2})
      .u32("llama.attention.key_length", 24)
      .u32("llama.attention.value_length", 8);
  const auto summary = summary_of(folder.write("m.gguf", w.build()));
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->shape_of("kv_heads"), 4u);
  EXPECT_EQ(summary->kv_bytes_per_token, (4u + 0 + 2) * (24 + 8) * 2);
}

TEST(Summary, WrongTypesAreNamed) {
  const TestFolder folder;
  const auto error = [&](GgufWriter w) {
    return summary_of(folder.write("m.gguf", w.build())).message();
  };
  EXPECT_EQ(error(small_llama().string("llama.context_length", "long")),
            "key 'llama.context_length' holds a string, not an integer");
  EXPECT_EQ(
      error(small_llama().array<int32_t>("llama.attention.head_count_kv", Type::kInt32, {1, -1})),
      "key 'llama.attention.head_count_kv': element 1 is -1");
  EXPECT_EQ(error(small_llama().u32("tokenizer.chat_template", 1)),
            "key 'tokenizer.chat_template' holds a uint32, not a string");
}

TEST(Summary, NumbersNeverOverflow) {
  const TestFolder folder;
  GgufWriter w;
  w.string("general.architecture", "x")
      .u32("x.block_count", UINT32_MAX)
      .u32("x.attention.head_count_kv", UINT32_MAX)
      .u32("x.attention.key_length", UINT32_MAX);
  const auto summary = summary_of(folder.write("m.gguf", w.build()));
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->kv_bytes_per_token, UINT64_MAX);
  EXPECT_EQ(saturating_product(uint64_t{1} << 32, uint64_t{1} << 31), uint64_t{1} << 63);
}

TEST(Summary, HuggingFaceFolder) {
  const TestFolder folder;
  folder.write("config.json", R"({"model_type": "gemma3", "eos_token_id": 9,
      "text_config": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
                      "num_key_value_heads": 1, "head_dim": 16, "sliding_window": null}})");
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}},
      "added_tokens": [{"id": 3, "content": "<end>"}, {"id": "x"}, 7]})");
  folder.write("model.safetensors", SafetensorsWriter().build());
  const auto summary = summary_of(folder.path());
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->architecture, "gemma3");
  EXPECT_EQ(summary->shape_of("layers"), 2u);
  EXPECT_EQ(summary->shape_of("sliding_window"), std::nullopt);
  EXPECT_EQ(summary->kv_bytes_per_token, 2u * 1 * (16 + 16) * 2);
  EXPECT_EQ(summary->tokenizer.kind, "BPE");
  EXPECT_EQ(summary->tokenizer.vocabulary, 4u);
  ASSERT_EQ(summary->tokenizer.special.size(), 2u);
  EXPECT_EQ(summary->tokenizer.special[0].text, "<end>");
  EXPECT_EQ(summary->tokenizer.special[1].id, 4);
  folder.write("config.json", R"({"num_hidden_layers": "two"})");
  EXPECT_EQ(summary_of(folder.path()).message(),
            "config.json: 'num_hidden_layers' is not a whole number of 32 bits");
}

TEST(Summary, MlxCountsTheValuesThatAreMeant) {
  const TestFolder folder;
  folder.write("config.json", R"({"quantization": {"bits": 4, "group_size": 32}})");
  folder.write("model.safetensors",
               SafetensorsWriter()
                   .tensor("m.weight", "U32", {2, 8}, std::vector<uint32_t>(16))
                   .tensor("m.scales", "F32", {2, 2}, std::vector<float>(4))
                   .tensor("m.biases", "F32", {2, 2}, std::vector<float>(4))
                   .tensor("norm.weight", "F32", {3}, std::vector<float>(3))
                   .build());
  const auto summary = summary_of(folder.path());
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->parameters, 2u * 64 + 3);
  ASSERT_EQ(summary->types.size(), 2u);
  EXPECT_EQ(summary->types[0].type, "affine 4-bit, groups of 32");
  EXPECT_EQ(summary->types[0].tensors, 1u);
  EXPECT_EQ(summary->types[0].bytes, 64u + 32);
}

}  // namespace
}  // namespace skein
