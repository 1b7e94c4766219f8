#include "format/weight_source.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

using testing::GgufWriter;
using testing::SafetensorsWriter;
using testing::TestFolder;
using Type = gguf::ValueType;

const std::string kGoldens = SKEIN_SOURCE_DIR "/build/goldens";

uint64_t parameters(const WeightSource& source) {
  uint64_t count = 0;
  for (const NamedTensor& tensor : source.tensors()) count += tensor.view.elements();
  return count;
}

// 13 of the families come as a GGUF twin of the safetensors folder. The converter unites the
// experts of a layer into one tensor and writes the rope factors of Llama 3 as a tensor.
TEST(WeightSource, EveryGoldenFolderOpens) {
  size_t folders = 0, twins = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    ++folders;
    const auto folder = open_model(entry.path().string());
    ASSERT_TRUE(folder.ok()) << folder.message();
    EXPECT_EQ(folder->kind(), SourceKind::kHuggingFace);
    EXPECT_TRUE(folder->documents().config["model_type"].is_string());
    EXPECT_TRUE(folder->documents().generation_config.is_null());
    EXPECT_FALSE(folder->documents().tokenizer_text());
    EXPECT_GT(parameters(*folder), 10'000u);
    const std::string gguf = entry.path() / "model.gguf";
    if (!std::filesystem::exists(gguf)) continue;
    ++twins;
    const auto twin = open_model(gguf);
    ASSERT_TRUE(twin.ok()) << twin.message();
    EXPECT_EQ(twin->kind(), SourceKind::kGguf);
    EXPECT_TRUE(twin->metadata().get<std::string_view>("general.architecture").ok());
    const NamedTensor* rope = twin->find("rope_freqs.weight");
    EXPECT_EQ(parameters(*twin) - (rope ? rope->view.elements() : 0), parameters(*folder));
  }
  EXPECT_EQ(folders, 17u);
  EXPECT_EQ(twins, 13u);
}

TEST(WeightSource, TheDefaultModelOpens) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const std::string path = testing::default_model_path();
  const auto source = open_model(path);
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_EQ(source->tensors().size(), 272u);
  EXPECT_EQ(parameters(*source), 134'515'008u);
  EXPECT_EQ(source->get("token_embd.weight")->shape, (Shape{49152, 576}));
  EXPECT_EQ(source->get("nothing").message(), path + ": tensor 'nothing' is missing");
  EXPECT_EQ((*source->chat_template())->substr(0, 2), "{%");
  EXPECT_FALSE(source->chat_template("tool_use")->has_value());
}

TEST(WeightSource, SaysWhichFileIsWrong) {
  const TestFolder folder;
  EXPECT_EQ(open_model(folder / "none.gguf").message(), folder / "none.gguf: no such file");
  const std::string text = folder.write("text.gguf", "hello");
  EXPECT_EQ(open_model(text).message(), text + ": not a GGUF file: it does not start with 'GGUF'");
  EXPECT_EQ(open_model(folder.path()).message(), folder / "config.json: no such file");
  folder.write("config.json", "{}");
  EXPECT_EQ(open_model(folder.path()).message(),
            folder.path() + ": has neither model.safetensors nor model.safetensors.index.json");
}

TEST(WeightSource, NoticesAFileThatWasWrittenTo) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  const std::string weights = folder.write("model.safetensors", SafetensorsWriter().build());
  const std::string tokenizer = folder.write("tokenizer.json", "{}");
  const auto source = open_model(folder.path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_TRUE(source->check_unchanged().ok());
  std::filesystem::resize_file(tokenizer, 1);
  EXPECT_EQ(source->check_unchanged().message(),
            tokenizer + ": had 2 bytes when it was opened and has 1 now");
  std::filesystem::resize_file(weights, 3);
  EXPECT_EQ(source->check_unchanged().message(),
            weights + ": had 10 bytes when it was opened and has 3 now");
}

GgufWriter split_part(uint16_t number, uint16_t count, int32_t tensors) {
  GgufWriter w;
  w.scalar("split.no", Type::kUint16, number)
      .scalar("split.count", Type::kUint16, count)
      .scalar("split.tensors.count", Type::kInt32, tensors);
  return w;
}

TEST(SplitGguf, AllPartsAreUnited) {
  const TestFolder folder;
  const std::string first = folder.write(
      "m-00001-of-00002.gguf",
      split_part(0, 2, 3).string("general.architecture", "llama").tensor({"b", {4}}).build());
  const std::string second = folder.write(
      "m-00002-of-00002.gguf", split_part(1, 2, 3).tensor({"a", {2}}).tensor({"c", {3}}).build());
  for (const std::string& path : {first, second}) {
    const auto source = open_model(path);
    ASSERT_TRUE(source.ok()) << source.message();
    EXPECT_EQ(source->file_count(), 2u);
    EXPECT_EQ(source->tensors().size(), 3u);
    EXPECT_EQ(source->get("a")->shape, Shape{2});
    EXPECT_EQ(source->get("b")->shape, Shape{4});
    EXPECT_EQ(*source->metadata().get<std::string_view>("general.architecture"), "llama");
  }
}

TEST(SplitGguf, FaultsAreNamed) {
  const TestFolder folder;
  const auto first = split_part(0, 2, 2).tensor({"b", {4}}).build();
  const auto second = split_part(1, 2, 2).tensor({"a", {2}}).build();
  const std::string path = folder.write("m-00001-of-00002.gguf", first);
  const std::string other = folder / "m-00002-of-00002.gguf";
  EXPECT_EQ(open_model(path).message(), other + ": no such file");
  folder.write("m-00002-of-00002.gguf", first);
  EXPECT_EQ(open_model(path).message(), other + ": says that it is part 1 of 2");
  folder.write("m-00002-of-00002.gguf", split_part(1, 2, 2).tensor({"b", {2}}).build());
  EXPECT_EQ(open_model(path).message(), path + ": tensor 'b' is in two of its files");
  folder.write("m-00002-of-00002.gguf", split_part(1, 2, 2).build());
  EXPECT_EQ(open_model(path).message(),
            path + ": key 'split.tensors.count' is 2, the 2 parts have 1 tensors");
  folder.write("m-00002-of-00002.gguf", second);
  EXPECT_TRUE(open_model(path).ok());
  const std::string renamed = folder.write("renamed.gguf", second);
  EXPECT_EQ(open_model(renamed).message(),
            renamed + ": is part 2 of 2, so its name must end with '-00002-of-00002.gguf'");
  const std::string many = folder.write("many.gguf", split_part(0, 60000, 1).build());
  EXPECT_EQ(open_model(many).message(), many + ": key 'split.count' is 60000, at most 1024");
}

class HfFolder : public ::testing::Test {
 protected:
  HfFolder() {
    folder_.write("config.json", R"({"model_type": "llama"})");
    folder_.write("model-1.safetensors",
                  SafetensorsWriter().tensor<float>("a", "F32", {2}, {1, 2}).build());
    folder_.write("model-2.safetensors",
                  SafetensorsWriter().tensor<float>("b", "F32", {1, 1}, {3}).build());
  }
  void index(const std::string& map) {
    folder_.write("model.safetensors.index.json", "{\"weight_map\": " + map + "}");
  }
  std::string error() const { return open_model(folder_.path()).message(); }

  TestFolder folder_;
  const std::string index_path_ = folder_ / "model.safetensors.index.json";
};

TEST_F(HfFolder, ShardsAreUnited) {
  index(R"({"a": "model-1.safetensors", "b": "model-2.safetensors"})");
  const auto source = open_model(folder_.path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_EQ(source->file_count(), 2u);
  EXPECT_EQ(element(*source->get("a"), 1), 2.0F);
  EXPECT_EQ(source->get("b")->shape, (Shape{1, 1}));
}

TEST_F(HfFolder, ShardFaultsAreNamed) {
  index(R"({"a": "model-1.safetensors", "b": "model-3.safetensors"})");
  EXPECT_EQ(error(), folder_ / "model-3.safetensors: no such file");
  index(R"({"a": "model-1.safetensors", "b": "model-1.safetensors"})");
  EXPECT_EQ(error(), folder_ /
                         "model-1.safetensors: tensor 'b' is missing, which "
                         "model.safetensors.index.json says is here");
  for (const char* escape : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..",
                             ".hidden.safetensors", "config.json", ""}) {
    index(std::string(R"({"a": ")") + escape + "\"}");
    EXPECT_EQ(error(), index_path_ + ": tensor 'a' is in '" + escape +
                           "', which is not a .safetensors file of the folder");
  }
  index(R"({"a": 1})");
  EXPECT_EQ(
      error(),
      index_path_ + ": tensor 'a' is in a number, which is not a .safetensors file of the folder");
  index("{}");
  EXPECT_EQ(error(), index_path_ + ": 'weight_map' is empty");
  index("[]");
  EXPECT_EQ(error(), index_path_ + ": has no object 'weight_map'");
  index("{");
  EXPECT_EQ(error(), index_path_ + ": not valid JSON at line 1, column 18");
  folder_.write("model-2.safetensors",
                SafetensorsWriter().tensor<float>("a", "F32", {1}, {3}).build());
  index(R"({"a": "model-1.safetensors", "a": "model-2.safetensors"})");
  EXPECT_TRUE(open_model(folder_.path()).ok());  // of duplicate keys the last one counts
}

TEST_F(HfFolder, ATensorInTwoShardsIsRefused) {
  folder_.write("model-2.safetensors", SafetensorsWriter()
                                           .tensor<float>("a", "F32", {1}, {3})
                                           .tensor<float>("b", "F32", {1}, {3})
                                           .build());
  index(R"({"a": "model-1.safetensors", "b": "model-2.safetensors"})");
  EXPECT_EQ(error(), folder_.path() + ": tensor 'a' is in two of its files");
}

TEST_F(HfFolder, DocumentsAreParsed) {
  folder_.write("model.safetensors", SafetensorsWriter().build());
  folder_.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  folder_.write("tokenizer.json", R"({"model": {"type": "BPE"}})");
  folder_.write("tokenizer_config.json", R"({"chat_template": "from config"})");
  {
    const auto source = open_model(folder_.path());
    ASSERT_TRUE(source.ok()) << source.message();
    EXPECT_EQ(source->documents().generation_config["eos_token_id"][1], 2);
    EXPECT_EQ(*source->documents().tokenizer_text(), R"({"model": {"type": "BPE"}})");
    EXPECT_EQ((*source->documents().tokenizer())["model"]["type"], "BPE");
    EXPECT_EQ(**source->chat_template(), "from config");
  }
  folder_.write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(**open_model(folder_.path())->chat_template(), "from json");
  folder_.write("chat_template.jinja", "from jinja");
  EXPECT_EQ(**open_model(folder_.path())->chat_template(), "from jinja");
}

TEST_F(HfFolder, NamedTemplates) {
  folder_.write("model.safetensors", SafetensorsWriter().build());
  folder_.write("tokenizer_config.json",
                R"({"chat_template": [{"name": "default", "template": "d"},
                                      {"name": "tool_use", "template": "t"}]})");
  const auto source = open_model(folder_.path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_EQ(**source->chat_template(), "d");
  EXPECT_EQ(**source->chat_template("tool_use"), "t");
  EXPECT_FALSE(source->chat_template("rag")->has_value());
  folder_.write("tokenizer_config.json", R"({"chat_template": [1]})");
  EXPECT_FALSE(open_model(folder_.path())->chat_template().ok());
}

TEST_F(HfFolder, DocumentFaultsAreNamed) {
  folder_.write("model.safetensors", SafetensorsWriter().build());
  folder_.write("config.json", "{\n  \"a\": 1,\n  oops}");
  EXPECT_EQ(error(), folder_ / "config.json: not valid JSON at line 3, column 3");
  folder_.write("config.json", "[]");
  EXPECT_EQ(error(), folder_ / "config.json: is not a JSON object");
  folder_.write("config.json", "{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}");
  EXPECT_EQ(error(), folder_ / "config.json: JSON nested 201 deep, at most 100");
  folder_.write("config.json", "{}");
  folder_.write("tokenizer_config.json", std::string(kMaxDocumentBytes + 1, ' '));
  EXPECT_EQ(error(),
            folder_ / "tokenizer_config.json: has 16777217 bytes, at most 16777216 are read");
}

class Mlx : public HfFolder {
 protected:
  Mlx() {
    config(R"({"bits": 4, "group_size": 32})");
    write({2, 8}, {2, 2});
  }
  void config(const std::string& quantization) {
    folder_.write("config.json", "{\"quantization\": " + quantization + "}");
  }
  void write(const std::vector<uint64_t>& packed, const std::vector<uint64_t>& groups) {
    const std::vector<uint32_t> words(packed[0] * packed[1], 0x76543210);
    const std::vector<float> scales(groups[0] * groups[1], 0.5F), biases(scales.size(), -1.0F);
    folder_.write("model.safetensors", SafetensorsWriter()
                                           .tensor("m.weight", "U32", packed, words)
                                           .tensor("m.scales", "F32", groups, scales)
                                           .tensor("m.biases", "F32", groups, biases)
                                           .tensor<float>("norm.weight", "F32", {1}, {1.0F})
                                           .build());
  }
};

TEST_F(Mlx, AQuantizedModuleIsOneMatrix) {
  const auto source = open_model(folder_.path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_FALSE(source->affine("norm")->has_value());
  const AffineView m = **source->affine("m");
  EXPECT_EQ(m.shape(), (Shape{2, 64}));
  std::vector<float> row(64);
  m.dequantize_row(1, row);
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], 0.5F * static_cast<float>(i % 8) - 1);
}

TEST_F(Mlx, AModuleMayHaveItsOwnFormat) {
  config(R"({"bits": 4, "group_size": 64, "m": {"bits": 8, "group_size": 32}})");
  write({1, 8}, {1, 1});
  const auto source = open_model(folder_.path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_EQ((*source->affine("m"))->shape(), (Shape{1, 32}));
  EXPECT_EQ((*source->affine("m"))->format().bits, 8u);
}

TEST_F(Mlx, FaultsAreNamed) {
  const std::string m = folder_.path() + ": tensor 'm.weight': ";
  write({2, 8}, {2, 1});
  EXPECT_EQ(error(), m + "scales are F32 [2, 1], not floats [2, 2]");
  write({2, 7}, {2, 2});
  EXPECT_EQ(error(), m + "rows of 7 words are not a whole number of groups of 4");
  write({2, 8}, {2, 2});
  config(R"({"bits": 3, "group_size": 32})");
  EXPECT_EQ(error(), m + "3 bits; 4 and 8 are read");
  config(R"({"bits": 4, "group_size": 0})");
  EXPECT_EQ(error(), m + "groups of 0; 32, 64 and 128 are read");
  config(R"({"bits": 4})");
  EXPECT_EQ(error(), folder_ / "config.json: quantization has no whole number 'group_size'");
  config(R"({"bits": 4, "group_size": 32, "mode": "mxfp4"})");
  EXPECT_EQ(error(), folder_ / "config.json: quantization mode 'mxfp4'; only affine is read");
  config("1");
  EXPECT_EQ(error(),
            folder_ / "config.json: has no object 'quantization', and module 'm' is quantized");
}

}  // namespace
}  // namespace skein
