#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/loading/load_text.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::default_model_path;
using testing::GgufWriter;
using testing::SafetensorsWriter;
using testing::TestFolder;
using Context = nlohmann::ordered_json;

Result<std::string> render(const std::string& path, const Context& context = Context::object()) {
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  SKEIN_ASSIGN(const ChatTemplate chat, load_chat_template(source));
  SKEIN_ASSIGN(const jinja::Rendered prompt, chat.render(context, {}));
  return prompt.text();
}

GgufWriter small_model() {
  GgufWriter w;
  w.string("general.architecture", "llama")
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"})
      .u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .tensor({.name = "w", .dims = {4}});
  return w;
}

TEST(LoadChatTemplate, FromGguf) {
  const TestFolder folder;
  GgufWriter w = small_model();
  w.string("tokenizer.chat_template", "{{ bos_token }}plain{{ eos_token }}")
      .string("tokenizer.chat_template.tool_use", "{{ bos_token }}tools");
  const std::string path = folder.write("m.gguf", w.build());
  EXPECT_EQ(*render(path), "<s>plain</s>");
  EXPECT_EQ(*render(path, {{"tools", Context::array({1})}}), "<s>tools");
}

TEST(LoadChatTemplate, ChatMlWhenTheFileHasNone) {
  const TestFolder folder;
  EXPECT_EQ(*render(folder.write("m.gguf", small_model().build()),
                    Context::parse(R"({"messages": [{"role": "user", "content": "Hi"}]})")),
            "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(LoadChatTemplate, BadFilesAreNamed) {
  const TestFolder folder;
  GgufWriter broken = small_model();
  broken.string("tokenizer.chat_template", "\n\n{% endif %}");
  const std::string path = folder.write("m.gguf", broken.build());
  EXPECT_EQ(render(path).message(), path + ": the chat template: line 3: unknown tag 'endif'");

  GgufWriter far;
  far.string("general.architecture", "llama")
      .strings("tokenizer.ggml.tokens", {"a"})
      .u32("tokenizer.ggml.bos_token_id", 7)
      .tensor({.name = "w", .dims = {4}});
  EXPECT_EQ(render(folder.write("far.gguf", far.build())).message(),
            "tokenizer.ggml.bos_token_id is 7, the vocabulary has 1 tokens");
}

std::string hf_folder(const TestFolder& folder, std::string_view tokenizer_config) {
  folder.write("hf/config.json", std::string_view(R"({"model_type": "llama"})"));
  folder.write("hf/tokenizer_config.json", tokenizer_config);
  folder.write("hf/model.safetensors",
               SafetensorsWriter().tensor("w", "F32", {1}, std::vector<float>{1}).build());
  return folder / "hf";
}

TEST(LoadChatTemplate, FromFolder) {
  const TestFolder folder;
  EXPECT_EQ(*render(hf_folder(folder, R"({"chat_template": "{{ bos_token }}|{{ eos_token }}",
                              "bos_token": "<s>", "eos_token": {"content": "</s>"}})")),
            "<s>|</s>");
  const std::string named = hf_folder(folder, R"({"bos_token": null, "chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(*render(named), "plain");
  EXPECT_EQ(*render(named, {{"tools", Context::array({1})}}), "tools");
  folder.write("hf/chat_template.jinja", std::string_view("from the file"));
  EXPECT_EQ(*render(named), "from the file");
  EXPECT_EQ(render(hf_folder(folder, R"({"bos_token": 5})")).message(),
            "tokenizer_config.json: bos_token is neither a string nor has it content");
}

TEST(LoadChatTemplate, DefaultModel) {
  const std::string path = default_model_path();
  SKEIN_NEEDS_DEFAULT_MODEL();
  EXPECT_EQ(*render(path, Context::parse(R"({"messages": [{"role": "user", "content": "Hi"}],
                                             "add_generation_prompt": true})")),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace skein
