// What cannot be loaded is refused with the reason, before anything large is touched.
#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "model/descriptions.h"
#include "model/write_and_run.h"

namespace skein {
namespace {

using testing::f32;
using ::testing::HasSubstr;
using testing::TensorData;
using testing::TestFolder;

using Shapes = std::vector<std::pair<std::string, std::vector<uint64_t>>>;

// Of a model of one layer whose heads make up 32.
Shapes shapes_of(uint64_t vocab, uint64_t hidden) {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {vocab, hidden}},
          {"lm_head.weight", {vocab, hidden}},
          {"model.norm.weight", {hidden}},
          {layer + "input_layernorm.weight", {hidden}},
          {layer + "post_attention_layernorm.weight", {hidden}},
          {layer + "self_attn.q_proj.weight", {32, hidden}},
          {layer + "self_attn.k_proj.weight", {16, hidden}},
          {layer + "self_attn.v_proj.weight", {16, hidden}},
          {layer + "self_attn.o_proj.weight", {hidden, 32}},
          {layer + "mlp.gate_proj.weight", {48, hidden}},
          {layer + "mlp.up_proj.weight", {48, hidden}},
          {layer + "mlp.down_proj.weight", {hidden, 48}}};
}

Json small_config() {
  Json config = testing::small_config("llama");
  config.update({{"vocab_size", 20},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 1},
                 {"max_position_embeddings", 64}});
  return config;
}

struct SmallModel {
  Json config = small_config();
  std::vector<TensorData> tensors;

  SmallModel() {
    for (const auto& [name, shape] : shapes_of(20, 32)) add(name, shape);
  }
  void add(const std::string& name, std::vector<uint64_t> shape) {
    const uint64_t count = testing::elements_of(shape);
    tensors.push_back(f32(name, std::move(shape), std::vector<float>(count, 0.5F)));
  }
  TensorData& at(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const TensorData& t) { return t.name == name; });
  }

  Status load(const DecoderOptions& options = {}) const {
    const TestFolder folder;
    const std::string path = testing::write_folder(folder, "m", config.dump(), tensors);
    const auto source = open_model(path);
    if (!source.ok()) return source.status();
    const auto backend = make_reference_backend(Precision::kF32);
    return Decoder::load(*source, *backend, options).status();
  }
};

void expect_refused(const SmallModel& model, Code code, const std::vector<std::string>& words,
                    const DecoderOptions& options = {}) {
  const Status status = model.load(options);
  EXPECT_EQ(code_name(status.code()), code_name(code)) << status.message();
  for (const std::string& word : words) EXPECT_THAT(status.message(), HasSubstr(word));
}

TEST(Refusal, TheSmallModelItselfLoads) {
  EXPECT_TRUE(SmallModel().load().ok()) << SmallModel().load().message();
  SmallModel with_tables;
  with_tables.add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
  EXPECT_TRUE(with_tables.load().ok()) << with_tables.load().message();
}

TEST(Refusal, AnUnknownFamily) {
  SmallModel model;
  model.config["model_type"] = "hyena";
  expect_refused(model, Code::kUnimplemented, {"'hyena'", "gemma3", "llama", "starcoder2"});
  model.config.erase("model_type");
  expect_refused(model, Code::kUnimplemented, {"model_type"});
  testing::GgufWriter writer = testing::gguf_config("hyena");
  const auto description = testing::from_gguf(testing::with_embedding(writer));
  EXPECT_EQ(description.status().code(), Code::kUnimplemented);
  EXPECT_THAT(description.message(), HasSubstr("'hyena'"));
}

TEST(Refusal, AMissingTensor) {
  for (const TensorData& tensor : SmallModel().tensors) {
    if (tensor.name == "lm_head.weight") continue;  // then the head is the embedding
    SmallModel model;
    std::erase_if(model.tensors, [&](const TensorData& t) { return t.name == tensor.name; });
    expect_refused(model, Code::kNotFound, {tensor.name});
  }
  SmallModel untied;
  untied.config["tie_word_embeddings"] = false;
  std::erase_if(untied.tensors, [](const TensorData& t) { return t.name == "lm_head.weight"; });
  expect_refused(untied, Code::kNotFound, {"lm_head.weight"});
  SmallModel biased;
  biased.config["attention_bias"] = true;
  expect_refused(biased, Code::kNotFound, {"self_attn.q_proj.bias"});
}

TEST(Refusal, AShapeThatDisagrees) {
  SmallModel model;
  model.at("model.layers.0.mlp.down_proj.weight").shape = {48, 32};
  expect_refused(model, Code::kInvalidArgument,
                 {"model.layers.0.mlp.down_proj.weight", "[48, 32]", "[32, 48]"});
  SmallModel norm;
  norm.at("model.norm.weight").shape = {16, 2};
  expect_refused(norm, Code::kInvalidArgument, {"model.norm.weight", "[16, 2]", "[32]"});
}

TEST(Refusal, ATensorWithoutAPlace) {
  SmallModel model;
  model.add("model.layers.1.mlp.up_proj.weight", {48, 32});
  expect_refused(model, Code::kInvalidArgument, {"model.layers.1.mlp.up_proj.weight", "[48, 32]"});
  SmallModel bias;
  bias.add("model.layers.0.self_attn.q_proj.bias", {32});
  expect_refused(bias, Code::kInvalidArgument, {"self_attn.q_proj.bias", "llama"});
}

TEST(Refusal, ATypeThatIsNoWeight) {
  SmallModel model;
  model.at("model.layers.0.mlp.up_proj.weight").type = ElementType::kI32;
  expect_refused(model, Code::kUnimplemented, {"model.layers.0.mlp.up_proj.weight", "I32"});
  SmallModel norm;
  norm.at("model.norm.weight").type = ElementType::kI32;
  expect_refused(norm, Code::kInvalidArgument, {"model.norm.weight", "I32"});
}

TEST(Refusal, MemoryThatIsNotThere) {
  expect_refused(SmallModel(), Code::kResourceExhausted, {"0 MB of memory"},
                 {.limits = {}, .max_context = 0, .memory_bytes = 1000});
  expect_refused(SmallModel(), Code::kResourceExhausted, {"MB of workspace", "5 MB of memory"},
                 {.limits = {1'000'000, 32}, .max_context = 0, .memory_bytes = 5 << 20});
}

TEST(Refusal, AContextBeyondTheModels) {
  expect_refused(SmallModel(), Code::kOutOfRange, {"65", "64"}, {.limits = {}, .max_context = 65});
  EXPECT_TRUE(SmallModel().load({.limits = {}, .max_context = 64}).ok());
  expect_refused(SmallModel(), Code::kInvalidArgument, {"0 rows"}, {.limits = {0, 1}});
}

TEST(Refusal, WeightsThatSomeToolHasPacked) {
  SmallModel model;
  model.config["quantization_config"] = {{"quant_method", "awq"}};
  expect_refused(model, Code::kUnimplemented, {"'awq'"});
}

// Numbers of a config are untrusted: every key, every kind of nonsense.
TEST(Refusal, NonsenseInAConfig) {
  const std::vector<Json> nonsense = {
      -1, 0, 1.5, "many", true, Json::array({1}), 1e300, uint64_t{1} << 40, UINT64_MAX, INT64_MIN};
  for (const std::string key :
       {"vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "num_hidden_layers", "max_position_embeddings", "rms_norm_eps",
        "rope_theta", "head_dim", "model_type", "tie_word_embeddings", "rope_scaling",
        "rope_parameters", "hidden_act"}) {
    for (const Json& value : nonsense) {
      Json config = small_config();
      config[key] = value;
      const auto description = testing::from_config(config);
      const bool is_sound = (key == "rope_theta" && value == 1.5) ||
                            (key == "tie_word_embeddings" && value.is_boolean());
      if (is_sound) continue;
      EXPECT_FALSE(description.ok()) << key << " = " << value;
    }
  }
  for (const std::string key :
       {"vocab_size", "hidden_size", "num_attention_heads", "intermediate_size",
        "num_hidden_layers", "max_position_embeddings"}) {
    Json config = small_config();
    config.erase(key);
    const auto description = testing::from_config(config);
    EXPECT_EQ(description.status().code(), Code::kNotFound);
    EXPECT_THAT(description.message(), HasSubstr(key));
  }
}

TEST(Refusal, NumbersThatDoNotFitEachOther) {
  const auto refused = [](const Json& changes) {
    Json config = small_config();
    config.update(changes);
    const auto description = testing::from_config(config);
    EXPECT_FALSE(description.ok()) << changes;
    return description.ok() ? "" : description.message();
  };
  EXPECT_THAT(refused({{"num_attention_heads", 5}}), HasSubstr("32"));
  EXPECT_THAT(refused({{"num_key_value_heads", 3}}), HasSubstr("4 heads"));
  EXPECT_THAT(refused({{"head_dim", 7}}), HasSubstr("7 rotary dimensions"));
  EXPECT_THAT(refused({{"partial_rotary_factor", 1.5}}), HasSubstr("1.5"));
  EXPECT_THAT(refused({{"hidden_act", "relu"}}), HasSubstr("'relu'"));
  EXPECT_THAT(refused({{"model_type", "gemma2"}, {"layer_types", {"full_attention", "x"}}}),
              HasSubstr("2 layers of 1"));
  EXPECT_THAT(refused({{"model_type", "gemma2"}, {"layer_types", {"linear_attention"}}}),
              HasSubstr("'linear_attention'"));
  EXPECT_THAT(refused({{"model_type", "gemma2"}, {"layer_types", {"sliding_attention"}}}),
              HasSubstr("sliding_window"));
  EXPECT_THAT(refused({{"rope_scaling", {{"type", "spiral"}}}}), HasSubstr("'spiral'"));
  EXPECT_THAT(
      refused({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 5}}),
      HasSubstr("5"));
  EXPECT_THAT(refused({{"model_type", "smollm3"}, {"no_rope_layers", {1, 1}}}),
              HasSubstr("2 layers of 1"));
}

// A model of 16 GB, right in everything: only its headers are read before it is refused.
TEST(Refusal, SixteenGigabytesInAMoment) {
  const TestFolder folder;
  constexpr uint64_t kVocab = uint64_t{1} << 24;
  constexpr uint64_t kHidden = 256;
  Json config = small_config();
  config.update({{"vocab_size", kVocab}, {"hidden_size", kHidden}, {"head_dim", 8}});
  std::string header;
  uint64_t end = 0;
  for (const auto& [name, shape] : shapes_of(kVocab, kHidden)) {
    const uint64_t bytes = 2 * testing::elements_of(shape);
    header += fmt::format(
        "{}\"{}\": {{\"dtype\": \"BF16\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
        header.empty() ? "" : ", ", name, fmt::join(shape, ", "), end, end + bytes);
    end += bytes;
  }
  ASSERT_GT(end, uint64_t{16} << 30);
  const auto refuse = [&](const Json& with, Code code, const std::string& word) {
    folder.write("m/config.json", with.dump());
    const std::string path =
        folder.write("m/model.safetensors", testing::safetensors_bytes("{" + header + "}", 0));
    const uint64_t size = std::filesystem::file_size(path);
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size + end)), 0);
    const auto start = std::chrono::steady_clock::now();
    const auto source = open_model(folder / "m");
    ASSERT_TRUE(source.ok()) << source.message();
    const auto backend = make_reference_backend(Precision::kF32);
    const auto loaded = Decoder::load(
        *source, *backend, {.limits = {}, .max_context = 0, .memory_bytes = uint64_t{8} << 30});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    EXPECT_EQ(code_name(loaded.status().code()), code_name(code));
    EXPECT_THAT(loaded.message(), HasSubstr(word));
  };
  refuse(config, Code::kResourceExhausted, "8192 MB of memory");
  config["intermediate_size"] = 64;
  refuse(config, Code::kInvalidArgument,
         "mlp.gate_proj.weight' is [48, 256], the config asks for [64");
  config["model_type"] = "hyena";
  refuse(config, Code::kUnimplemented, "'hyena'");
}

}  // namespace
}  // namespace skein
