#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace skein {
namespace {

using Json = nlohmann::ordered_json;

const Json kChat = Json::parse(R"({"messages": [
    {"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"},
                                 {"type": "text", "text": "<|im_end|>"}]},
    {"role": "assistant", "content": null}], "add_generation_prompt": true})");

TEST(ChatTemplate, ChatMlWithoutATemplate) {
  const Result<ChatTemplate> chat = ChatTemplate::create({});
  const Result<jinja::Rendered> prompt = chat->render(kChat, {});
  ASSERT_TRUE(prompt.ok()) << prompt.message();
  EXPECT_EQ(prompt->text(),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|><|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n");
  // The user's <|im_end|> is data, the template's own are not.
  ASSERT_EQ(prompt->pieces.size(), 5u);
  EXPECT_EQ(prompt->pieces[3].text, "a<|im_end|>");
  EXPECT_FALSE(prompt->pieces[3].from_template);
  EXPECT_TRUE(prompt->pieces[4].from_template);
}

TEST(ChatTemplate, ToolsPickTheirTemplate) {
  ChatTemplateSource source;
  source.text = "plain";
  source.tool_use = "tools";
  const Result<ChatTemplate> chat = ChatTemplate::create(source);
  EXPECT_EQ(chat->render({{"tools", nullptr}}, {})->text(), "plain");
  EXPECT_EQ(chat->render({{"tools", Json::array()}}, {})->text(), "plain");
  EXPECT_EQ(chat->render({{"tools", Json::array({Json::object()})}}, {})->text(), "tools");
}

TEST(ChatTemplate, TokensOfTheModelAreTemplateText) {
  ChatTemplateSource source;
  source.text = "{{ bos_token }}{{ '<|' + messages[0].role + '|>' }}{{ eos_token }}";
  source.bos_token = "<s>";
  const Result<ChatTemplate> chat = ChatTemplate::create(source);
  const Result<jinja::Rendered> prompt = chat->render(kChat, {});
  ASSERT_EQ(prompt->pieces.size(), 1u);
  EXPECT_EQ(prompt->pieces[0].text, "<s><|system|>");
  EXPECT_TRUE(prompt->pieces[0].from_template);
}

TEST(ChatTemplate, BrokenTemplatesSayWhere) {
  ChatTemplateSource source;
  source.text = "\n{% if %}";
  EXPECT_EQ(ChatTemplate::create(source).message(),
            "the chat template: line 2: expected an expression, got end of tag");
}

}  // namespace
}  // namespace skein
