#include "dialog/answer_parser.h"

#include <gtest/gtest.h>

#include "dialog/dialog_helpers.h"
#include "dialog/known_formats.h"
#include "fuzz/small_tokenizers.h"
#include "text/markers.h"

namespace skein::dialog {
namespace {

using testing::must_find;
using testing::own_template;
using testing::parse;
using testing::parse_in_every_way;
using testing::Parsed;
using testing::Syntax;
using testing::syntax_of;
using testing::template_source;

ChatFormat own_format(const char* name) {
  return must_find(template_source(own_template(name)));
}

Tool tool_named(const char* name, const char* parameters) {
  Tool tool;
  tool.name = name;
  tool.parameters = OrderedJson::parse(parameters);
  return tool;
}

std::string read(const ChatFormat& format, std::string_view text, std::vector<Tool> tools = {},
                 bool in_reasoning = false) {
  Rng rng(3);
  return parse_in_every_way(syntax_of(format, std::move(tools)), text, rng, in_reasoning).summary();
}

TEST(AnswerParser, TextIsText) {
  const ChatFormat format = own_format("hermes");
  EXPECT_EQ(read(format, ""), "[][]");
  EXPECT_EQ(read(format, "Hello <tool_cal and <tool_call"), "[][Hello <tool_cal and <tool_call]");
  EXPECT_EQ(read(format, " a\n\nb \n"), "[][ a\n\nb \n]");
  const std::string spaces(300, ' ');
  EXPECT_EQ(read(format, "a" + spaces + "b"), "[][a" + spaces + "b]");
  EXPECT_EQ(read(format, "a\xC3x\xE2\x82"), "[][a\uFFFDx]");
}

TEST(AnswerParser, ThoughtsTextAndCallsInAnyOrder) {
  const ChatFormat format = own_format("hermes");
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  EXPECT_EQ(read(format, "<think>\nHm.\n</think>\n\nYes.\n" + call), "[Hm.][Yes.] f{\"a\": 1}");
  EXPECT_EQ(read(format, call + "\n" + call), "[][] f{\"a\": 1} f{\"a\": 1}");
  EXPECT_EQ(read(format, call + "\nDone.<think>x</think>" + call),
            "[x][Done.] f{\"a\": 1} f{\"a\": 1}");
  EXPECT_EQ(read(format, "Hm.\n</think>\n\nYes.", {}, true), "[Hm.][Yes.]");
  EXPECT_EQ(read(format, "Hm. ", {}, true), "[Hm.][]");
}

TEST(AnswerParser, JsonIsReadAsItComes) {
  const ChatFormat format = own_format("hermes");
  const auto call = [&](const std::string& body) { return read(format, "<tool_call>" + body); };
  EXPECT_EQ(call(R"({"name":"f","arguments":{ "a" : [1,{"b":"}"}] }})"),
            R"([][] f{ "a" : [1,{"b":"}"}] })");
  EXPECT_EQ(call(R"({"name": "f"})"), "[][] f{}");
  EXPECT_EQ(call(R"({"name": "f", "arguments": null})"), "[][] f{}");
  EXPECT_EQ(call(R"({"name": "f", "arguments": ""})"), "[][] f{}");
  EXPECT_EQ(call(R"({"id": 12, "arguments": {"a": 1}, "name": "f", "x": [{}]})"),
            "[][] f{\"a\": 1}");
  EXPECT_EQ(call(R"({"name": "f", "arguments": "{\"a\": \"\u00e9\\n\ud83d\ude00\"}"})"),
            "[][] f{\"a\": \"é\\n😀\"}");
  EXPECT_EQ(call(R"({"name": "f", "arguments": {"a": "</tool_call>"}})"),
            R"([][] f{"a": "</tool_call>"})");
}

// What section 3 of the design says of calls that do not come to an end.
TEST(AnswerParser, ACallThatIsCutKeepsItsArguments) {
  const ChatFormat format = own_format("hermes");
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>";
  const size_t named = text.find("f\",") + 2, whole = text.find("}}") + 2;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const Parsed parsed = parse(syntax_of(format), std::string_view(text).substr(0, cut));
    if (cut < named) {
      EXPECT_EQ(parsed.summary(), "[][" + text.substr(0, cut) + "]");
      continue;
    }
    ASSERT_EQ(parsed.calls.size(), 1U);
    EXPECT_EQ(parsed.whole[0], cut >= whole);
    EXPECT_TRUE(std::string_view(R"({"a": [1, 2]})").starts_with(parsed.calls[0].arguments));
    EXPECT_EQ(parsed.text, "");
  }
}

TEST(AnswerParser, WhatIsUndecidedWhenAnAnswerIsCutIsNotShown) {
  const auto cut = [](const char* name, std::string_view text, bool in_reasoning = false) {
    const Syntax syntax = syntax_of(own_format(name), {tool_named("get", "{}")});
    AnswerParser parser(syntax, in_reasoning);
    Parsed parsed;
    std::vector<DialogEvent> events;
    parser.push_text(text, events);
    parsed.take(events);
    parser.finish(events, true);
    parsed.take(events);
    return parsed.summary();
  };
  EXPECT_EQ(cut("hermes", "Hi <tool_ca"), "[][Hi]");
  EXPECT_EQ(cut("hermes", "Hi <tool_call>\n{\"name\": \"ge"), "[][Hi]");
  EXPECT_EQ(cut("hermes", "Hi <tool_call>\n{\"name\": \"get\""), "[][Hi] get...");
  EXPECT_EQ(cut("hermes", "Hi <too many"), "[][Hi <too many]") << "that is no marker";
  EXPECT_EQ(cut("hermes", "Hi \n"), "[][Hi \n]");
  EXPECT_EQ(cut("hermes", "Hm. </thi", true), "[Hm.][]");
  EXPECT_EQ(cut("parameters", "Hi <tool_call>\n<function=ge"), "[][Hi]");
  EXPECT_EQ(cut("told_python", "Hi <|tool_call_start|>[ge"), "[][Hi]");
  EXPECT_EQ(cut("call_list", "Hi [TOOL_CALLS][{\"name\": \""), "[][Hi]");
  // Bare JSON is a call only if it begins as one.
  EXPECT_EQ(cut("llama", "{\"name\": \"ge"), "[][]");
  EXPECT_EQ(cut("llama", "{\"na"), "[][]");
  EXPECT_EQ(cut("llama", "{\"nation\": \"France"), "[][{\"nation\": \"France]");
  EXPECT_EQ(cut("channels", "<|chan"), "[][]");
  EXPECT_EQ(cut("channels", "<|channel|>final<|message|>Hi<|en"), "[][Hi]");
  EXPECT_EQ(cut("channels", "<|channel|>analysis<|message|>Hm<|end|><|start|>assis"), "[Hm][]");
  EXPECT_EQ(cut("channels", "no header"), "[][no header]");
}

TEST(AnswerParser, WhatIsNoCallIsText) {
  const ChatFormat format = own_format("hermes");
  for (const char* text :
       {"<tool_call> is a marker", "<tool_call>{\"nam\": 1}", "<tool_call>{\"name\": 7}",
        "<tool_call>{\"name\": \"bad name\"}", "<tool_call>{}", "<tool_call><tool_call>[]",
        "<tool_call>{\"arguments\": [1]}", "a\n<tool_call>", "<tool_call>{\"name\": \"\"}"}) {
    EXPECT_EQ(read(format, text), "[][" + std::string(text) + "]");
  }
  // A real call behind one that is none.
  EXPECT_EQ(read(format, "<tool_call>x<tool_call>{\"name\": \"f\"}"), "[][<tool_call>x] f{}");
  // Arguments that are no JSON: the call stays as it is, and what follows is text.
  EXPECT_EQ(read(format, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": x}}"),
            "[][x}}] f{\"a\": ...");
}

TEST(AnswerParser, BareJsonMustNameATool) {
  const ChatFormat format = own_format("llama");
  const std::vector<Tool> tools = {tool_named("f", "{}")};
  EXPECT_EQ(read(format, R"({"name": "f", "parameters": {"a": 1}})", tools), "[][] f{\"a\": 1}");
  EXPECT_EQ(read(format, R"(<|python_tag|>{"name": "f", "parameters": {}})", tools), "[][] f{}");
  EXPECT_EQ(read(format, R"({"name": "Bob", "age": 3})", tools),
            R"([][{"name": "Bob", "age": 3}])");
  EXPECT_EQ(read(format, R"(So {"name": "f"})", tools), R"([][So {"name": "f"}])");
}

TEST(AnswerParser, TagsBecomeJsonByTheSchema) {
  const ChatFormat format = own_format("parameters");
  const std::vector<Tool> tools = {tool_named("f", R"({"properties": {
      "s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}, "any": {}}})")};
  const auto call = [&](const std::string& key, const std::string& value) {
    return read(format,
                "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value +
                    "\n</parameter>\n</function>\n</tool_call>",
                tools);
  };
  EXPECT_EQ(call("s", "7"), R"([][] f{"s": "7"})");
  EXPECT_EQ(call("s", "\n a \"b\"\\\n"), R"([][] f{"s": "\n a \"b\"\\\n"})");
  EXPECT_EQ(call("s", ""), R"([][] f{"s": ""})");
  EXPECT_EQ(call("s", "</parameter> quoted"), R"([][] f{"s": "</parameter> quoted"})");
  EXPECT_EQ(call("n", "7"), R"([][] f{"n": 7})");
  EXPECT_EQ(call("b", "True"), R"([][] f{"b": true})");
  EXPECT_EQ(call("n", "many"), R"([][] f{"n": "many"})");
  EXPECT_EQ(call("any", "{\"a\": 1}"), R"([][] f{"any": {"a": 1}})");
  EXPECT_EQ(call("any", "None"), R"([][] f{"any": null})");
  EXPECT_EQ(call("any", "a b"), R"([][] f{"any": "a b"})");
  EXPECT_EQ(read(format, "<tool_call><function=f></function>"), "[][] f{}");
  EXPECT_EQ(read(format, "<tool_call><function=f><parameter=s>a</parameter>", tools),
            "[][] f{\"s\": \"a\"...");
  EXPECT_EQ(read(format, "<tool_call>\n<function=f g>"), "[][<tool_call>\n<function=f g>]");
}

TEST(AnswerParser, AValueTooLongToBeLookedAtIsAText) {
  const ChatFormat format = own_format("parameters");
  const std::string value(kMaxHeldBytes + 1, '7');
  const Parsed parsed = parse(syntax_of(format), "<tool_call><function=f><parameter=x>\n" + value +
                                                     "\n</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(parsed.calls.size(), 1U);
  EXPECT_EQ(parsed.calls[0].arguments, "{\"x\": \"" + value + "\"}");
  EXPECT_TRUE(parsed.whole[0]);
}

TEST(AnswerParser, PythonAndAlmostJson) {
  const ChatFormat python = own_format("told_python"), escapes = own_format("told_escapes");
  EXPECT_EQ(
      read(
          python,
          R"(<|tool_call_start|>[f(a='x\'y', n=-7, b=True, l=[1, None, {'k': "v"}]), g()]<|tool_call_end|>)"),
      R"([][] f{"a": "x'y", "n": -7, "b": true, "l": [1, null, {"k": "v"}]} g{})");
  EXPECT_EQ(read(python, "<|tool_call_start|>[f(a=b)]"), "[][] f{\"a\": \"b\"}");
  EXPECT_EQ(read(python, "<|tool_call_start|>[f(a='b' 'c')]"), "[]['c')]] f{\"a\": \"b\"...");
  EXPECT_EQ(read(escapes,
                 "<start_function_call>call:f{a:<escape>x,\"y}<escape>,n:7,o:{k:[1,true]}}"
                 "<end_function_call> ok"),
            R"([][ok] f{"a": "x,\"y}", "n": 7, "o": {"k": [1, true]}})");
}

TEST(AnswerParser, Channels) {
  const ChatFormat format = own_format("channels");
  EXPECT_EQ(read(format,
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                 "<|message|>Yes.<|return|>"),
            "[Hm.][Yes.]");
  EXPECT_EQ(read(format,
                 "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}"
                 "<|call|>"),
            "[][] f{\"a\": 1}");
  EXPECT_EQ(read(format, " to=functions.f<|channel|>analysis code<|message|>{\"a\": 1"),
            "[][] f{\"a\": 1...");
  EXPECT_EQ(read(format,
                 "<|channel|>commentary<|message|>First.<|end|><|start|>assistant to=functions.g"
                 "<|channel|>commentary<|message|>{}<|call|>"),
            "[][First.] g{}");
  EXPECT_EQ(read(format, "No header."), "[][No header.]");
  EXPECT_EQ(read(format, "<|channel|>anal"), "[][]");
}

TEST(AnswerParser, WithoutToolsACallIsText) {
  const auto syntax =
      std::make_shared<const AnswerSyntax>(std::make_shared<const ChatFormat>(own_format("hermes")),
                                           Markers(), std::vector<Tool>{}, false);
  const std::string text = "<tool_call>\n{\"name\": \"f\"}\n</tool_call>";
  EXPECT_EQ(parse(syntax, "<think>a</think>" + text).summary(), "[a][" + text + "]");
}

TEST(AnswerParser, CallsAreCounted) {
  const ChatFormat format = own_format("hermes");
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  std::string text;
  for (uint32_t i = 0; i < kMaxCalls; ++i) text += call;
  EXPECT_EQ(parse(syntax_of(format), text).calls.size(), kMaxCalls);
  const Parsed parsed = parse(syntax_of(format), text + call);
  EXPECT_EQ(parsed.calls.size(), kMaxCalls);
  EXPECT_EQ(parsed.text, call);
}

// A byte-level vocabulary in which the id of a byte is the byte.
class AnswerTokens : public ::testing::Test {
 protected:
  static Tokenizer tokenizer() {
    TokenizerSpec spec;
    spec.byte_level = true;
    spec.decoder = TokenizerSpec::Decoder::kByteLevel;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      const uint32_t c = printable ? b : next++;
      std::string text(1, static_cast<char>(c));
      if (c >= 0x80)
        text = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
      fuzz::add(spec, text);
    }
    fuzz::add_token(spec, "<|im_end|>", true);
    fuzz::add_token(spec, "<tool_call>", false);
    fuzz::add_token(spec, "[TOOL_CALLS]", true);
    const std::vector<std::string> literals = {"<tool_call>", "[TOOL_CALLS]"};
    guard_markers(literals, spec);
    PreTokenizerStep step;
    step.splitter = Splitter::kGpt2;
    spec.pre_tokenizer.push_back(std::move(step));
    return fuzz::must_create(std::move(spec));
  }

  std::string read(const ChatFormat& format, const std::vector<TokenId>& ids) const {
    const auto syntax =
        std::make_shared<const AnswerSyntax>(std::make_shared<const ChatFormat>(format),
                                             markers_of(format, tokenizer_), std::vector<Tool>{});
    AnswerParser parser(syntax, false);
    Parsed parsed;
    std::vector<DialogEvent> events;
    for (const TokenId id : ids) {
      parser.push(id, tokenizer_.bytes(id), tokenizer_.is_control(id), events);
      parsed.take(events);
    }
    parser.finish(events);
    parsed.take(events);
    return parsed.summary();
  }
  std::vector<TokenId> ids(std::string_view text, bool special) const {
    return *tokenizer_.encode(text, {.parse_special = special});
  }

  Tokenizer tokenizer_ = tokenizer();
};

TEST_F(AnswerTokens, AMarkerThatIsATokenCountsOnlyAsThatToken) {
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>";
  EXPECT_EQ(read(ChatFormat(), ids(text, true)), "[][] f{}");
  EXPECT_EQ(read(ChatFormat(), ids(text, false)), "[][" + text + "]");
}

TEST_F(AnswerTokens, ControlTokensAreNoText) {
  const ChatFormat format = own_format("call_list");
  EXPECT_EQ(read(format,
                 ids("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"é\"}, \"id\": \"1\"}]"
                     "<|im_end|>",
                     true)),
            "[][] f{\"a\": \"é\"}");
  EXPECT_EQ(read(format, ids("a[TOOL_CALLS]b<|im_end|>c", true)), "[][abc]");
}

}  // namespace
}  // namespace skein::dialog
