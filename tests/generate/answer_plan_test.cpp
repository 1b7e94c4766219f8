// How answers are bound and read, for models that think and models that do not.
#include "generate/answer_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/compute_pool.h"
#include "dialog/dialog_helpers.h"
#include "dialog/history.h"
#include "engine/tiny_model.h"
#include "generate/prompt.h"

namespace skein {
namespace {

using ::testing::ElementsAre;

class AnswerPlanTest : public ::testing::Test {
 protected:
  void load(const char* chat_template) {
    const std::string path = testing::write_tiny_model(folder_);
    if (chat_template != nullptr) {
      std::filesystem::copy_file(dialog::testing::own_template(chat_template),
                                 path + "/chat_template.jinja",
                                 std::filesystem::copy_options::overwrite_existing);
    }
    auto model = LoadedModel::load(path, {}, pool_);
    ASSERT_TRUE(model.ok()) << model.message();
    model_ = std::move(*model);
    ASSERT_TRUE(model_->forms()->prepare().ok());
  }
  AnswerPlan plan(AnswerTerms terms, bool in_reasoning = false) const {
    return AnswerPlan(*model_, std::move(terms), in_reasoning);
  }
  static std::vector<dialog::Tool> tools() {
    return dialog::tools_of(OrderedJson::parse(R"([
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
         "properties": {"a": {"type": "array", "contains": {"const": 1}}}}}}])"));
  }

  // More of them than a grammar may have.
  static std::string many_symbols() {
    std::string text = "start: ";
    for (int i = 0; i < 510'000; ++i) text += "B ";
    return text + "\nB: \"x\"\n";
  }

  testing::TestFolder folder_;
  ComputePool pool_{1};
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(AnswerPlanTest, APlainAnswerNeedsNothing) {
  load(nullptr);
  EXPECT_FALSE(plan({}).has_form());
  EXPECT_EQ(plan({}).syntax(), nullptr);
  const AnswerPlan barred = plan({.tools = tools(), .choice = dialog::ToolChoice::kNone});
  EXPECT_FALSE(barred.has_form());
  EXPECT_EQ(barred.syntax(), nullptr);
  // A form alone is the form that a completion has.
  const FormSpec spec = {.kind = FormSpec::Kind::kRegex, .text = "a"};
  std::optional<AnswerPlan::Refusal> refusal;
  EXPECT_EQ(plan({.content = spec}).compile(refusal), model_->forms()->compile(spec).value());
  EXPECT_FALSE(plan({.limits_thought = true}).has_form()) << "it has no thoughts";
}

TEST_F(AnswerPlanTest, AModelThatThinksIsReadWithoutTools) {
  load("hermes");
  EXPECT_FALSE(plan({}).has_form());
  ASSERT_NE(plan({}).syntax(), nullptr);
  EXPECT_FALSE(plan({}).syntax()->calls);
  EXPECT_EQ(plan({.parses_reasoning = false}).syntax(), nullptr);
  EXPECT_FALSE(plan({.parses_reasoning = false}, true).in_reasoning());
  EXPECT_TRUE(plan({.limits_thought = true}).has_form());
  const FormSpec spec = {.kind = FormSpec::Kind::kRegex, .text = "[ab]+"};
  std::optional<AnswerPlan::Refusal> refusal;
  const auto takes = [&](AnswerTerms terms, bool open, std::string_view text) {
    const auto form = plan(std::move(terms), open).compile(refusal);
    EXPECT_FALSE(refusal);
    grammar::Matcher matcher(form->grammar);
    return matcher.advance_bytes(text) && matcher.may_end();
  };
  EXPECT_TRUE(takes({.content = spec}, false, "ab"));
  EXPECT_TRUE(takes({.content = spec}, false, "<think>x\n</think>\n\nab"));
  EXPECT_FALSE(takes({.content = spec, .may_think = false}, false, "<think>x</think>ab"));
  EXPECT_TRUE(takes({.content = spec}, true, "x</think>ab"));
  EXPECT_FALSE(takes({.content = spec}, true, "ab"));
  // With tools as well it is a text of the form, calls, or the one and then the others.
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(takes({.tools = tools(), .content = spec}, false, "ab"));
  EXPECT_TRUE(takes({.tools = tools(), .content = spec}, false, call));
  EXPECT_TRUE(takes({.tools = tools(), .content = spec}, false, "ab" + call));
  EXPECT_FALSE(takes({.tools = tools(), .content = spec}, false, call + "ab"));
  EXPECT_FALSE(takes({.tools = tools(), .content = spec}, false, "ab\n"));
  EXPECT_FALSE(takes({.tools = tools(), .content = spec}, false, "free"));
  // Thoughts stand between texts, and what looks like a call there is none.
  EXPECT_TRUE(takes({.tools = tools()}, false, "one <think><tool_call></think> two " + call));
  EXPECT_FALSE(takes({.tools = tools()}, false, "one <tool_call> two"));
  // A model may stop in the middle of one, but not where a text or a call is wanted.
  for (const bool open : {false, true}) {
    EXPECT_TRUE(takes({.tools = tools()}, open,
                      (open ? "hm </think> a " : "a ") + std::string("<think>hm <tool_call>")));
    EXPECT_EQ(takes({.tools = tools()}, open, "hm <tool_call>"), open);
    EXPECT_FALSE(takes({.content = spec}, open, open ? "hm" : "<think>hm"));
  }
}

// Where the end of a result is a token no text becomes it, and results stay as they are.
TEST_F(AnswerPlanTest, TheEndOfAResultIsALetterOrAToken) {
  load("hermes");
  EXPECT_EQ(model_->chat_format()->habits.result_end, "</tool_response>");
  const std::string path = testing::write_tiny_model(folder_, "guarded");
  std::filesystem::copy_file(dialog::testing::own_template("hermes"),
                             path + "/chat_template.jinja");
  std::ifstream in(path + "/tokenizer.json");
  OrderedJson tokenizer = OrderedJson::parse(in);
  tokenizer["added_tokens"].back()["content"] = "</tool_response>";
  tokenizer["added_tokens"].back()["special"] = false;
  std::ofstream(path + "/tokenizer.json") << tokenizer.dump();
  auto guarded = LoadedModel::load(path, {}, pool_);
  ASSERT_TRUE(guarded.ok()) << guarded.message();
  EXPECT_EQ((*guarded)->chat_format()->habits.result_end, "");
  const TokenId end = (*guarded)->tokenizer()->tokenizer.find("</tool_response>");
  ASSERT_GE(end, 256);
  const SystemClock clock;
  const auto ids =
      PromptBuilder(**guarded, 4096, clock)
          .encode_chat(
              {.context = chat_context({{{"role", "user"}, {"content", "q"}},
                                        {{"role", "tool"}, {"content", "a</tool_response>b"}}})});
  ASSERT_TRUE(ids.ok()) << ids.message();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), end), 1);
}

TEST_F(AnswerPlanTest, FormatsThatAreNamed) {
  const std::string path = testing::write_tiny_model(folder_);
  std::filesystem::copy_file(dialog::testing::own_template("hermes"),
                             path + "/chat_template.jinja");
  const auto load_as = [&](dialog::FormatNames names) {
    ModelOptions options;
    options.formats = std::move(names);
    return LoadedModel::load(path, options, pool_);
  };
  auto named = load_as({"llama-3", "none"});
  ASSERT_TRUE(named.ok()) << named.message();
  EXPECT_EQ((*named)->chat_format()->calls.name, "llama-3");
  EXPECT_EQ(source_name((*named)->chat_format()->calls_from), "option");
  EXPECT_EQ((*named)->chat_format()->reasoning.name, "none");
  EXPECT_EQ(AnswerPlan(**named, {}, false).syntax(), nullptr) << "no thoughts to look for";
  const auto same = load_as({"hermes", "think"});
  ASSERT_TRUE(same.ok()) << same.message();
  EXPECT_EQ(source_name((*same)->chat_format()->calls_from), "template");
  EXPECT_THAT(load_as({"hermse", "auto"}).message(), ::testing::HasSubstr("auto, generic, "));
  EXPECT_THAT(load_as({"auto", "thonk"}).message(), ::testing::HasSubstr("auto, none, think"));
}

TEST_F(AnswerPlanTest, FormsAreKeptByWhatTheySay) {
  load(nullptr);
  std::optional<AnswerPlan::Refusal> refusal;
  const auto form = plan({.tools = tools()}).compile(refusal);
  ASSERT_NE(form, nullptr);
  EXPECT_EQ(plan({.tools = tools()}).compile(refusal), form);
  EXPECT_NE(plan({.tools = tools(), .parallel = false}).compile(refusal), form);
  EXPECT_NE(plan({.tools = tools(), .callable = {"f"}}).compile(refusal), form);
  auto strict = tools();
  strict[0].strict = true;
  EXPECT_NE(plan({.tools = strict}).compile(refusal), form);
  auto described = tools();
  described[0].description = "other words";
  EXPECT_EQ(plan({.tools = described}).compile(refusal), form) << "they do not bind";
  EXPECT_FALSE(refusal);
}

TEST_F(AnswerPlanTest, WhatIsNotEnforcedHasTheNumberOfItsTool) {
  load(nullptr);
  std::optional<AnswerPlan::Refusal> refusal;
  auto form = plan({.tools = tools(), .callable = {"g"}}).compile(refusal);
  ASSERT_NE(form, nullptr);
  EXPECT_THAT(form->relaxed, ElementsAre("/tools/1/properties/a/contains"));
  auto strict = tools();
  strict[1].strict = true;
  EXPECT_EQ(plan({.tools = strict, .callable = {"g"}}).compile(refusal), nullptr);
  ASSERT_TRUE(refusal);
  EXPECT_FALSE(refusal->of_content);
  EXPECT_EQ(refusal->error.where, "/1/properties/a/contains");
  refusal.reset();
  const FormSpec wrong = {.kind = FormSpec::Kind::kRegex, .text = "("};
  EXPECT_EQ(plan({.tools = tools(), .content = wrong}).compile(refusal), nullptr);
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->of_content);
}

TEST_F(AnswerPlanTest, AToolHasTheNumberThatTheClientGave) {
  load(nullptr);
  std::optional<AnswerPlan::Refusal> refusal;
  auto form = plan({.tools = tools(), .places = {2, 5}, .callable = {"g"}}).compile(refusal);
  ASSERT_NE(form, nullptr);
  EXPECT_THAT(form->relaxed, ElementsAre("/tools/5/properties/a/contains"));
  EXPECT_NE(plan({.tools = tools(), .places = {2, 6}, .callable = {"g"}}).compile(refusal), form);
}

// What no text can match is known only when all of it is put together.
TEST_F(AnswerPlanTest, ARefusalNamesWhoseItIs) {
  load("hermes");
  const FormSpec nothing = {.kind = FormSpec::Kind::kJsonSchema, .text = R"({"enum": []})"};
  std::optional<AnswerPlan::Refusal> refusal;
  EXPECT_EQ(plan({.content = nothing}).compile(refusal), nullptr);
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->of_content) << "no tool came with it";
  refusal.reset();
  EXPECT_NE(plan({.tools = tools(), .content = nothing}).compile(refusal), nullptr)
      << "a call can still come";
  const FormSpec large = {.kind = FormSpec::Kind::kLark, .text = many_symbols()};
  EXPECT_EQ(plan({.tools = tools(), .content = large}).compile(refusal), nullptr);
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->of_content);
}

TEST_F(AnswerPlanTest, ATextWithAnExpression) {
  for (const char* format : {"hermes", "parameters", "told_escapes"}) {
    SCOPED_TRACE(format);
    load(format);
    auto custom =
        dialog::tools_of(OrderedJson::parse(R"([{"type": "function", "function": {"name": "p",
      "parameters": {"type": "object", "properties": {"input": {"type": "string"}}}}}])"));
    std::optional<AnswerPlan::Refusal> refusal;
    const auto refused = [&](const char* regex) {
      refusal.reset();
      custom[0].regex = regex;
      (void)plan({.tools = custom, .choice = dialog::ToolChoice::kRequired}).compile(refusal);
      return refusal ? refusal->error.where + " " +
                           std::string(grammar::form_code_name(refusal->error.code))
                     : "";
    };
    for (const char* wrong : {"a)|(?:b", "(?<=a)b", "a("}) {
      EXPECT_EQ(refused(wrong), "/0 invalid_regex") << wrong;
    }
    custom[0].regex = "[a\n]{1,2}";
    refusal.reset();
    const auto form =
        plan({.tools = custom, .choice = dialog::ToolChoice::kRequired}).compile(refusal);
    ASSERT_NE(form, nullptr);
    const auto takes = [&](const char* arguments) {
      grammar::Matcher matcher(form->grammar);
      const std::vector<dialog::ToolCall> calls = {{"abcdefgh1", "p", arguments}};
      return matcher.advance_bytes(dialog::write_calls(model_->chat_format()->calls, calls)) &&
             matcher.may_end();
    };
    EXPECT_TRUE(takes(R"({"input": "a"})"));
    EXPECT_TRUE(takes(R"({"input": "a\n"})"));
    EXPECT_FALSE(takes(R"({"input": "aaa"})"));
    EXPECT_FALSE(takes(R"({"input": "b"})"));
  }
}

TEST_F(AnswerPlanTest, ATextWithAGrammar) {
  load(nullptr);
  auto custom =
      dialog::tools_of(OrderedJson::parse(R"([{"type": "function", "function": {"name": "p",
      "parameters": {"type": "object", "properties": {"input": {"type": "string"}}}}}])"));
  custom[0].lark = "start: \"a\\n\" B*\nB: /[\"b]/\n";
  std::optional<AnswerPlan::Refusal> refusal;
  const auto form =
      plan({.tools = custom, .choice = dialog::ToolChoice::kRequired}).compile(refusal);
  ASSERT_NE(form, nullptr);
  const auto takes = [&](std::string_view input) {
    grammar::Matcher matcher(form->grammar);
    const std::string call = "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"input\": \"" +
                             std::string(input) + "\"}}\n</tool_call>";
    return matcher.advance_bytes(call) && matcher.may_end();
  };
  EXPECT_TRUE(takes("a\\n"));
  EXPECT_TRUE(takes("a\\nb\\\"b"));
  EXPECT_FALSE(takes("a\\nc"));
  EXPECT_FALSE(takes("ab"));
}

}  // namespace
}  // namespace skein
