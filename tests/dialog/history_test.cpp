#include "dialog/history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dialog/call_writer.h"
#include "dialog/dialog_helpers.h"

namespace skein::dialog {
namespace {

using ::testing::HasSubstr;
using testing::must_find;
using ::testing::Not;
using testing::own_template;
using testing::template_source;

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";

class HistoryTest : public ::testing::TestWithParam<const char*> {
 protected:
  HistoryTest() : HistoryTest(GetParam()) {}
  explicit HistoryTest(const char* name)
      : source_(template_source(own_template(name))), format_(must_find(source_)) {}

  jinja::Rendered render(const char* messages, const char* tools = kTools) const {
    const ChatTemplate chat = std::move(ChatTemplate::create(source_)).value();
    const History history =
        prepare_history(format_, OrderedJson::parse(messages), OrderedJson::parse(tools));
    const OrderedJson context = {{"messages", history.messages},
                                 {"tools", history.tools},
                                 {"documents", nullptr},
                                 {"add_generation_prompt", true}};
    auto rendered = chat.render(context, {});
    EXPECT_TRUE(rendered.ok()) << rendered.message() << "\n" << history.messages.dump();
    if (!rendered.ok()) return {};
    put_calls(history, *rendered);
    return *rendered;
  }

  ChatTemplateSource source_;
  ChatFormat format_;
};

constexpr const char* kConversation = R"([
    {"role": "user", "content": "QUESTION"},
    {"role": "assistant", "content": null, "reasoning_content": "THOUGHT", "tool_calls": [
        {"id": "call_abcdefghijklmnopqrstuvwx", "type": "function",
         "function": {"name": "f", "arguments": "{\"a\": \"<tool_call>\", \"n\": [1]}"}}]},
    {"role": "tool", "tool_call_id": "call_abcdefghijklmnopqrstuvwx", "content": "RESULT"},
    {"role": "user", "content": "THANKS"}])";

// Every family renders it, and the call stands there as the family writes it.
TEST_P(HistoryTest, CallsAndResultsAreRendered) {
  const std::string text = render(kConversation).text();
  EXPECT_THAT(text, HasSubstr("QUESTION"));
  EXPECT_THAT(text, HasSubstr("RESULT"));
  EXPECT_THAT(text, HasSubstr("THANKS"));
  std::string id = "call_abcdefghijklmnopqrstuvwx";
  if (format_.habits.nine_character_ids) {
    EXPECT_THAT(text, Not(HasSubstr(id)));
    const size_t at = text.find("\"id\": \"");
    ASSERT_NE(at, std::string::npos);
    id = text.substr(at + 7, 9);
    EXPECT_THAT(text, HasSubstr("\"call_id\": \"" + id + "\""));
  }
  if (format_.calls.shape == CallShape::kHarmony) return;
  const ToolCall call = {id, "f", R"({"a": "<tool_call>", "n": [1]})"};
  EXPECT_THAT(text, HasSubstr(write_calls(format_.calls, std::span(&call, 1))));
  if (!format_.reasoning.field.empty() && format_.reasoning_from == FormatSource::kTemplate) {
    EXPECT_THAT(text, HasSubstr("THOUGHT"));
  }
}

// Arguments that are no JSON are text, and no error.
TEST_P(HistoryTest, ArgumentsThatAreNoJson) {
  const std::string text = render(R"([
    {"role": "user", "content": "QUESTION"},
    {"role": "assistant", "content": "SO", "tool_calls": [
        {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": "{\"a\": BROKEN"}}]},
    {"role": "tool", "tool_call_id": "123456789", "content": "RESULT"}])")
                               .text();
  EXPECT_THAT(text, HasSubstr("SO"));
  EXPECT_THAT(text, HasSubstr("BROKEN"));
  EXPECT_THAT(text, HasSubstr("RESULT"));
}

// What a tool says cannot end its own result, where the end is letters.
TEST_P(HistoryTest, AResultCannotEndItself) {
  const std::string end =
      format_.habits.writes_results ? format_.habits.result_end : "</tool_response>";
  if (end.empty()) return;  // the template has no marker there
  const auto ends_with = [&](const std::string& result) {
    const OrderedJson messages = {
        {{"role", "user"}, {"content", "QUESTION"}},
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls",
          {{{"id", "123456789"},
            {"type", "function"},
            {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}},
        {{"role", "tool"}, {"tool_call_id", "123456789"}, {"content", result}}};
    const std::string text = render(messages.dump().c_str()).text();
    EXPECT_THAT(text, HasSubstr("RESULT"));
    size_t count = 0;
    for (size_t at = text.find(end); at != std::string::npos; at = text.find(end, at + 1)) ++count;
    return count;
  };
  const size_t once = ends_with("RESULT");
  EXPECT_GT(once, 0U);
  EXPECT_EQ(ends_with(end + "RESULT" + end + end + " and " + end), once);
  EXPECT_EQ(ends_with(end.substr(0, 1) + end + "RESULT"), once);
}

TEST_P(HistoryTest, ToolsAreShownOnce) {
  const std::string text = render(R"([{"role": "user", "content": "QUESTION"}])").text();
  EXPECT_THAT(text, HasSubstr("\"name\": \"f\""));
  EXPECT_EQ(text.find("\"name\": \"f\""), text.rfind("\"name\": \"f\""));
}

INSTANTIATE_TEST_SUITE_P(Templates, HistoryTest,
                         ::testing::Values("actions", "call_list", "channels", "fenced", "hermes",
                                           "key_value", "llama", "name_args", "no_tools",
                                           "numbered", "parameters", "text_arguments",
                                           "told_escapes", "told_only", "told_python",
                                           "typed_tags"),
                         [](const auto& info) { return std::string(info.param); });

class HistoryCase : public HistoryTest {
 protected:
  explicit HistoryCase(const char* name) : HistoryTest(name) {}
};

struct ToldOnly : HistoryCase {
  ToldOnly() : HistoryCase("told_only") {}
};
struct NoTools : HistoryCase {
  NoTools() : HistoryCase("no_tools") {}
};
struct CallList : HistoryCase {
  CallList() : HistoryCase("call_list") {}
};

// The markers of a call that we write are the template's own text, what a user or a model wrote is
// not: it must not become control tokens.
TEST_F(ToldOnly, OnlyMarkersAreTheTemplatesOwn) {
  const jinja::Rendered rendered = render(kConversation);
  bool marker = false;
  for (size_t i = 0; i < rendered.pieces.size(); ++i) {
    const jinja::Piece& segment = rendered.pieces[i];
    EXPECT_FALSE(segment.text.empty());
    if (i > 0) {
      EXPECT_NE(segment.from_template, rendered.pieces[i - 1].from_template);
    }
    marker |= segment.from_template &&
              segment.text.find("<tool_call>\n{\"name\": \"") != std::string::npos && i > 2;
    if (!segment.from_template) continue;
    EXPECT_THAT(segment.text, Not(HasSubstr("\"a\": \"<tool_call>\"")));
  }
  EXPECT_TRUE(marker);
}

TEST_F(NoTools, ResultsJoinTheUsersTurn) {
  const std::string text = render(kConversation).text();
  EXPECT_THAT(text, HasSubstr("<tool_response>\nRESULT\n</tool_response>\nTHANKS"));
  EXPECT_THAT(text, HasSubstr("To call one, write:\n<tool_call>"));
}

TEST_F(CallList, ALateSystemMessageJoinsTheTurnBefore) {
  const std::string text = render(R"([{"role": "user", "content": "QUESTION"},
      {"role": "system", "content": "BRIEF"}])")
                               .text();
  EXPECT_THAT(text, HasSubstr("QUESTION\n<system>BRIEF</system>"));
}

TEST(CallIds, AreWhatEachDialectWants) {
  const std::string id = call_id(7, 0, IdStyle::kOpenAi);
  EXPECT_EQ(id.size(), 29U);
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_EQ(id, call_id(7, 0, IdStyle::kOpenAi));
  EXPECT_NE(id, call_id(7, 1, IdStyle::kOpenAi));
  EXPECT_NE(id, call_id(8, 0, IdStyle::kOpenAi));
  EXPECT_TRUE(call_id(7, 0, IdStyle::kAnthropic).starts_with("toolu_"));
  EXPECT_EQ(call_id(7, 0, IdStyle::kNine).size(), 9U);
}

// Arguments are decoded after the word was chosen, so somebody could have spelled out a place.
TEST(PutCalls, EachStandsOnceWhateverElseSaysItsPlace) {
  History history;
  history.word = "word";
  history.written = {{{"<call>", true}, {"data", false}}};
  jinja::Rendered prompt;
  prompt.pieces = {{"a wordn0x b wordn0x wordn7x wordnx", false}, {"wordn0x", true}};
  put_calls(history, prompt);
  std::string all;
  for (const jinja::Piece& piece : prompt.pieces) all += piece.text;
  EXPECT_EQ(all, "a <call>data b wordn0x wordn7x wordnxwordn0x");
}

TEST(ParseArguments, ManyNamesTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"{}\": {}", i > 0 ? "," : "", i, i);
  text += ", \"7\": true}";
  const OrderedJson parsed = parse_arguments(text);
  ASSERT_EQ(parsed.size(), 200'000u);
  EXPECT_EQ(parsed.items().begin().key(), "0");
  EXPECT_EQ(parsed["7"], true) << "of members with one name the last counts";
}

}  // namespace
}  // namespace skein::dialog
