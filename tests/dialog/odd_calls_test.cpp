// What looks like a call and is none, and arguments in odd spellings.
#include <gtest/gtest.h>

#include "dialog/dialog_helpers.h"

namespace skein::dialog {
namespace {

using testing::must_find;
using testing::own_template;
using testing::parse_in_every_way;
using testing::Syntax;
using testing::syntax_of;
using testing::template_source;

Syntax odd_syntax(const char* name) {
  Tool tool;
  tool.name = "see";
  tool.parameters = OrderedJson::parse(
      R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}})");
  return syntax_of(must_find(template_source(own_template(name))), {tool});
}

std::string summary(const Syntax& syntax, std::string_view text) {
  Rng rng(3);
  return parse_in_every_way(syntax, text, rng).summary();
}

void expect_text(const Syntax& syntax, const std::string& text) {
  EXPECT_EQ(summary(syntax, text), "[][" + text + "]");
}

TEST(OddCalls, AWordBehindATagIsNoCall) {
  const Syntax tags = odd_syntax("key_value");
  const std::string begin = tags->format->calls.call_begin;
  expect_text(tags, begin + "see you later.");
  expect_text(tags, begin + "see");
  expect_text(tags, begin + "other\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>");
  const std::vector<ToolCall> calls = {{"", "see", R"({"a": "x"})"}, {"", "see", "{}"}};
  EXPECT_EQ(summary(tags, "So. " + write_calls(tags->format->calls, calls)),
            R"([][So.] see{"a": "x"} see{})");
}

TEST(OddCalls, BracketsInATextAreNoCall) {
  const Syntax python = odd_syntax("told_python");
  const CallFormat& format = python->format->calls;
  const std::string begin = format.section_begin + format.call_begin;
  expect_text(python, begin + "see (this)]");
  expect_text(python, begin + "I see(a=1)]");
  expect_text(python, begin + "look(a=1)]");
  const auto call = [&](const std::string& arguments) {
    return summary(python, begin + "see(" + arguments + ")" + format.call_end + format.section_end);
  };
  EXPECT_EQ(call("a='x', b=[1, 2,]"), R"([][] see{"a": "x", "b": [1, 2]})");
  EXPECT_EQ(call("b=[[], {'k': None},]"), R"([][] see{"b": [[], {"k": null}]})");
  EXPECT_EQ(call(R"(a="\ud83d\ude00 \u00e9")"), "[][] see{\"a\": \"\U0001F600 é\"}");
  EXPECT_EQ(call(R"(a="\ud83d!")"), "[][] see{\"a\": \"\uFFFD!\"}");
  EXPECT_EQ(call(R"(a="\ud83d\n\ude00")"), "[][] see{\"a\": \"\uFFFD\\n\uFFFD\"}");
  EXPECT_EQ(call(R"(a="\U0001F600\UFFFFFFFF")"), "[][] see{\"a\": \"\U0001F600\uFFFD\"}");
}

TEST(OddCalls, AMarkerOfAChannelInsideAString) {
  const Syntax channels = odd_syntax("channels");
  const std::string begin = "<|channel|>commentary to=functions.see <|constrain|>json<|message|>";
  EXPECT_EQ(summary(channels, begin + R"({"a": "<|call|>"}<|call|>)"),
            R"([][] see{"a": "<|call|>"})");
  EXPECT_EQ(summary(channels, begin + R"({"a": 1<|call|>)"), R"([][] see{"a": 1...)");
}

}  // namespace
}  // namespace skein::dialog
