#include "dialog/answer_grammar.h"

#include <gtest/gtest.h>

#include "dialog/dialog_helpers.h"
#include "grammar/compiled_grammar.h"

namespace skein::dialog {
namespace {

using testing::must_find;
using testing::own_template;
using testing::parse;
using testing::Parsed;
using testing::syntax_of;
using testing::template_source;

std::shared_ptr<const grammar::TokenTrie> bytes_trie() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  return *grammar::TokenTrie::make(std::move(tokens));
}

std::vector<Tool> weather_tools() {
  Tool weather;
  weather.name = "get_weather";
  weather.parameters = OrderedJson::parse(R"({"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                     "unit": {"type": "string", "enum": ["c", "f"]}},
      "required": ["city"]})");
  Tool time;
  time.name = "time";
  return {weather, time};
}

class Answers {
 public:
  Answers(const ChatFormat& format, std::vector<Tool> tools, AnswerOptions options)
      : format_(format), tools_(std::move(tools)) {
    auto rules = answer_rules(format_, tools_, options);
    EXPECT_TRUE(rules.ok()) << rules.error().message;
    if (!rules.ok()) return;
    relaxed = rules->relaxed;
    auto compiled = grammar::compile(std::move(rules->rules), bytes_trie());
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    if (compiled.ok()) grammar_ = *compiled;
  }

  bool takes(std::string_view text) const {
    grammar::Matcher matcher(grammar_);
    return matcher.advance_bytes(text) && matcher.may_end();
  }
  // Calls as the format writes them.
  std::string written(std::vector<std::pair<std::string, std::string>> calls) const {
    std::vector<ToolCall> list;
    for (auto& [name, arguments] : calls) list.push_back({"abcdefgh1", name, arguments});
    return write_calls(format_.calls, list);
  }

  std::vector<std::string> relaxed;

 private:
  ChatFormat format_;
  std::vector<Tool> tools_;
  std::shared_ptr<grammar::CompiledGrammar> grammar_;
};

class AnswerGrammar : public ::testing::TestWithParam<const char*> {
 protected:
  ChatFormat format_ = must_find(template_source(own_template(GetParam())));
};

TEST_P(AnswerGrammar, BindsNamesAndArgumentsInTheFormatsSyntax) {
  const Answers required(format_, weather_tools(), {.choice = ToolChoice::kRequired});
  const auto one = [&](const char* name, const char* arguments) {
    return required.takes(required.written({{name, arguments}}));
  };
  EXPECT_TRUE(one("get_weather", R"({"city": "Paris, \"é\"", "days": 3, "unit": "c"})"));
  EXPECT_TRUE(one("get_weather", R"({"city": "x", "unit": "f"})"));
  EXPECT_TRUE(one("time", "{}"));
  EXPECT_FALSE(one("get_news", R"({"city": "x"})"));
  EXPECT_FALSE(one("get_weather", "{}"));
  EXPECT_FALSE(one("get_weather", R"({"days": 3})"));
  EXPECT_FALSE(one("get_weather", R"({"city": "x", "days": "many"})"));
  EXPECT_FALSE(one("get_weather", R"({"city": "x", "unit": "k"})"));
  EXPECT_FALSE(one("get_weather", R"({"city": "x", "other": 1})"));
  EXPECT_FALSE(required.takes("It rains."));
  EXPECT_FALSE(required.takes(""));
}

TEST_P(AnswerGrammar, TextIsFreeUntilACallBegins) {
  const Answers automatic(format_, weather_tools(), {});
  const std::string call = automatic.written({{"get_weather", R"({"city": "x"})"}});
  const bool bare = format_.calls.section_begin.empty() && format_.calls.call_begin.empty();
  EXPECT_TRUE(automatic.takes("It rains. <b> {\"a\": 1} [x"));
  EXPECT_TRUE(automatic.takes(call));
  EXPECT_TRUE(automatic.takes("I ask." + call));
  const std::string wrong = automatic.written({{"nothing", R"({"city": "x"})"}});
  EXPECT_FALSE(automatic.takes(wrong));
  EXPECT_EQ(automatic.takes("I ask." + wrong), bare);  // where a call stands alone this is text
  const Answers none(format_, weather_tools(), {.choice = ToolChoice::kNone});
  EXPECT_TRUE(none.takes("It rains."));
  EXPECT_TRUE(none.takes(call));  // it is text
}

TEST_P(AnswerGrammar, OneCallOrSeveral) {
  const Answers several(format_, weather_tools(), {.choice = ToolChoice::kRequired});
  const Answers one(format_, weather_tools(), {.choice = ToolChoice::kRequired, .parallel = false});
  const std::string single = one.written({{"time", "{}"}});
  const std::string two = one.written({{"time", "{}"}, {"get_weather", R"({"city": "x"})"}});
  EXPECT_TRUE(one.takes(single));
  EXPECT_FALSE(one.takes(two));
  EXPECT_EQ(several.takes(two), format_.calls.parallel);
}

INSTANTIATE_TEST_SUITE_P(Formats, AnswerGrammar,
                         ::testing::Values("actions", "call_list", "fenced", "hermes", "key_value",
                                           "llama", "name_args", "no_tools", "numbered",
                                           "parameters", "text_arguments", "told_escapes",
                                           "told_python", "typed_tags"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AnswerGrammarThoughts, AreFreeAndComeFirst) {
  const ChatFormat format = must_find(template_source(own_template("hermes")));
  const AnswerOptions required = {.choice = ToolChoice::kRequired};
  const Answers closed(format, weather_tools(), required);
  const std::string call = closed.written({{"time", "{}"}});
  EXPECT_TRUE(closed.takes("<think>\nWhat <tool_call> now?\n</think>\n\n" + call));
  EXPECT_FALSE(closed.takes("<think>\nWhat now?" + call));
  const Answers open(format, weather_tools(),
                     {.choice = ToolChoice::kRequired, .in_reasoning = true});
  EXPECT_TRUE(open.takes("What now?\n</think>\n\n" + call));
  EXPECT_FALSE(open.takes(call));
}

TEST(AnswerGrammarChannels, HeadersAreBound) {
  const ChatFormat format = must_find(template_source(own_template("channels")));
  const Answers automatic(format, weather_tools(), {});
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"x\"}"
      "<|call|>";
  EXPECT_TRUE(automatic.takes(thought + "<|channel|>final<|message|>Yes."));
  EXPECT_TRUE(automatic.takes(thought + thought + call));
  EXPECT_FALSE(automatic.takes("Yes."));
  EXPECT_FALSE(automatic.takes(thought + "<|channel|>finale<|message|>Yes."));
  const Answers required(format, weather_tools(), {.choice = ToolChoice::kRequired});
  EXPECT_FALSE(required.takes("<|channel|>final<|message|>Yes."));
  const Parsed parsed = parse(syntax_of(format, weather_tools()), thought + call);
  EXPECT_EQ(parsed.summary(), "[Hm.][] get_weather{\"city\": \"x\"}");
}

TEST(AnswerGrammarChannels, WithoutThoughtsTheFirstTokenIsTheAnswers) {
  const ChatFormat format = must_find(template_source(own_template("channels")));
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const Answers answers(format, weather_tools(), {.may_think = false});
  EXPECT_TRUE(answers.takes("<|channel|>final<|message|>Yes."));
  EXPECT_FALSE(answers.takes(thought + "<|channel|>final<|message|>Yes."));
  const Answers required(format, weather_tools(),
                         {.choice = ToolChoice::kRequired, .may_think = false});
  EXPECT_FALSE(required.takes(thought));
}

// A marker that is a token comes as that token, and its letters are text.
TEST(AnswerGrammarTokens, MarkersThatAreTokens) {
  constexpr TokenId kCalls = 256;
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.emplace_back();
  const auto trie = *grammar::TokenTrie::make(std::move(tokens));
  const ChatFormat format = must_find(template_source(own_template("call_list")));
  const std::vector<Tool> tools = weather_tools();
  AnswerOptions options;
  options.tokens = [](std::string_view marker) {
    return marker == "[TOOL_CALLS]" ? kCalls : kNoToken;
  };
  auto rules = answer_rules(format, tools, options);
  ASSERT_TRUE(rules.ok());
  auto compiled = grammar::compile(std::move(rules->rules), trie);
  ASSERT_TRUE(compiled.ok());
  const std::string call = R"([{"name": "time", "arguments": {}, "id": "abcdefgh1"}])";
  grammar::Matcher matcher(*compiled);
  EXPECT_TRUE(matcher.advance_bytes("So [TOOL_CALLS]"));
  EXPECT_TRUE(matcher.advance(kCalls));
  grammar::Matcher wrong = matcher;
  EXPECT_TRUE(matcher.advance_bytes(call));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(wrong.advance_bytes(R"([{"name": "tame")"));
}

TEST(AnswerGrammarSchemas, WhatCannotBeEnforcedIsNamedOrRefused) {
  const ChatFormat hermes = must_find(template_source(own_template("hermes")));
  const ChatFormat tags = must_find(template_source(own_template("parameters")));
  std::vector<Tool> tools = weather_tools();
  tools[1].parameters = OrderedJson::parse(
      R"({"type": "object", "properties": {"a": {"contains": {}}, "b": {"type": "string", "pattern": "x"}}})");
  EXPECT_EQ(Answers(hermes, tools, {}).relaxed,
            std::vector<std::string>{"/1/properties/a/contains"});
  EXPECT_EQ(Answers(tags, tools, {}).relaxed,
            (std::vector<std::string>{"/1/properties/b/pattern", "/1/properties/a/contains"}));
  tools[1].strict = true;
  for (const ChatFormat& format : {hermes, tags}) {
    const auto refused = answer_rules(format, tools, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, grammar::FormCode::kUnsupportedSchema);
    EXPECT_TRUE(refused.error().where.starts_with("/1/properties/")) << refused.error().where;
  }
  tools[1].strict = false;  // any object
  const Answers any(hermes, tools, {.choice = ToolChoice::kRequired});
  EXPECT_TRUE(any.relaxed.empty());
  EXPECT_TRUE(any.takes(any.written({{"time", R"({"z": [1]})"}})));
  tools[1].strict.reset();
  tools[1].parameters = OrderedJson::parse(R"({"type": "object", "minProperties": "x"})");
  const auto invalid = answer_rules(hermes, tools, {});
  ASSERT_FALSE(invalid.ok());
  EXPECT_EQ(invalid.error().code, grammar::FormCode::kInvalidSchema);
  EXPECT_TRUE(invalid.error().where.starts_with("/1")) << invalid.error().where;
}

Tool tool_with(const char* parameters, std::optional<bool> strict = {}) {
  Tool tool;
  tool.name = "f";
  tool.parameters = OrderedJson::parse(parameters);
  tool.strict = strict;
  return tool;
}

constexpr const char* kAllShapes[] = {"hermes",     "llama",       "call_list",    "name_args",
                                      "parameters", "told_python", "told_escapes", "key_value"};

// Arguments are an object, whatever a schema allows besides.
TEST(AnswerGrammarSchemas, ArgumentsAreAnObject) {
  for (const char* file : kAllShapes) {
    SCOPED_TRACE(file);
    const ChatFormat format = must_find(template_source(own_template(file)));
    for (const char* parameters :
         {R"({"properties": {"city": {"type": "string"}}, "required": ["city"]})",
          R"({"description": "nothing"})",
          R"({"$schema": "http://json-schema.org/draft-07/schema#"})",
          R"({"type": ["object", "null"]})",
          R"({"title": "t", "$comment": "c", "examples": []})"}) {
      SCOPED_TRACE(parameters);
      const Answers answers(format, {tool_with(parameters)}, {.choice = ToolChoice::kRequired});
      EXPECT_TRUE(answers.relaxed.empty());
      EXPECT_TRUE(answers.takes(answers.written({{"f", R"({"city": "x"})"}})));
      if (format.calls.shape == CallShape::kTagged || format.calls.shape == CallShape::kLoose) {
        continue;  // pairs cannot be anything else
      }
      for (const char* other : {"null", "7", "[]", "\"x\""}) {
        std::string text = answers.written({{"f", "{}"}});
        const size_t at = text.rfind("{}");
        ASSERT_NE(at, std::string::npos);
        EXPECT_FALSE(answers.takes(text.replace(at, 2, other))) << other;
      }
    }
    const auto refused = answer_rules(
        format, std::vector<Tool>{weather_tools()[0], tool_with(R"({"type": "string"})")}, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, grammar::FormCode::kUnsatisfiableSchema);
    EXPECT_EQ(refused.error().where, "/1");
  }
}

// A tool that nobody could call is an error, and not one tool less.
TEST(AnswerGrammarSchemas, AToolThatNobodyCanCallIsRefused) {
  for (const char* file : {"hermes", "parameters", "told_escapes", "told_python", "channels"}) {
    SCOPED_TRACE(file);
    const ChatFormat format = must_find(template_source(own_template(file)));
    for (
        const char* parameters :
        {R"({"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]})",
         R"({"properties": {"a": {"type": "string", "enum": [1]}}, "required": ["a"]})",
         R"({"properties": {}, "additionalProperties": false, "required": ["a"]})"}) {
      SCOPED_TRACE(parameters);
      const auto refused =
          answer_rules(format, std::vector<Tool>{weather_tools()[0], tool_with(parameters)}, {});
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, grammar::FormCode::kUnsatisfiableSchema);
      EXPECT_EQ(refused.error().where, "/1");
    }
  }
}

// Arguments one by one: what is not enforced is named, or refused where that is wanted.
TEST(AnswerGrammarSchemas, PairsDropNoKeyword) {
  for (const char* file : {"parameters", "key_value", "told_escapes"}) {
    SCOPED_TRACE(file);
    const ChatFormat format = must_find(template_source(own_template(file)));
    const auto relaxed = [&](const char* property) {
      const std::string text =
          std::string(R"({"properties": {"u": )") + property + R"(}, "required": ["u"]})";
      const bool refused =
          !answer_rules(format, std::vector<Tool>{tool_with(text.c_str(), true)}, {}).ok();
      const auto names = Answers(format, {tool_with(text.c_str())}, {}).relaxed;
      EXPECT_EQ(refused, !names.empty());
      return names;
    };
    using Names = std::vector<std::string>;
    EXPECT_EQ(relaxed(R"({"type": "string", "not": {"const": "x"}})"),
              Names{"/0/properties/u/not"});
    EXPECT_EQ(relaxed(R"({"type": "string", "allOf": [{"enum": ["a"]}]})"),
              Names{"/0/properties/u/allOf"});
    EXPECT_EQ(relaxed(R"({"type": "string", "anyOf": [{"const": "a"}]})"),
              Names{"/0/properties/u/anyOf"});
    EXPECT_EQ(relaxed(R"({"type": "string", "format": "date"})"), Names{"/0/properties/u/format"});
    EXPECT_EQ(relaxed(R"({"type": "string", "format": "secret", "title": "t", "default": "d",
                          "examples": ["e"], "$comment": "c", "x-own": 1, "minimum": 3})"),
              Names{});
    const auto takes = [&](const char* parameters, const char* arguments) {
      const Answers answers(format, {tool_with(parameters, true)},
                            {.choice = ToolChoice::kRequired});
      return answers.takes(answers.written({{"f", arguments}}));
    };
    const char* constant =
        R"({"properties": {"u": {"type": "string", "const": "c", "enum": ["b", "c"]}}})";
    EXPECT_TRUE(takes(constant, R"({"u": "c"})"));
    EXPECT_FALSE(takes(constant, R"({"u": "b"})"));
    const char* required =
        R"({"properties": {"u": {"type": "integer"}}, "required": ["v/w", "u"]})";
    EXPECT_TRUE(takes(required, R"({"u": 1, "v/w": 2})"));
    EXPECT_FALSE(takes(required, R"({"u": 1})"));
    const char* reference = R"({"properties": {"a/": {"type": "integer", "maximum": 5},
                                               "b": {"$ref": "#/properties/a~1"}}})";
    EXPECT_TRUE(takes(reference, R"({"a/": 5, "b": 4})"));
    EXPECT_FALSE(takes(reference, R"({"a/": 5, "b": 6})"));
  }
}

// What is refused takes no more work: neither the tools behind it nor its other properties.
TEST(AnswerRules, ARefusedToolIsTheLastThatIsRead) {
  const auto tool_of = [](const std::string& name, const OrderedJson& properties) {
    Tool tool;
    tool.name = name;
    tool.parameters = {{"type", "object"}, {"properties", properties}};
    tool.strict = true;
    return tool;
  };
  const OrderedJson refused = {{"type", "array"}, {"contains", {{"const", 1}}}};
  OrderedJson many = OrderedJson::object();
  for (int i = 0; i < 100; ++i) {
    many["p" + std::to_string(i)] = {{"type", "integer"}, {"maximum", 1000 + i}};
  }
  const Tool good = tool_of("good", many);
  OrderedJson then_refused = many;
  then_refused["z"] = refused;
  for (const char* file : {"hermes", "parameters", "channels", "told_python"}) {
    SCOPED_TRACE(file);
    const ChatFormat format = must_find(template_source(own_template(file)));
    // The expressions that were made until the error, in the store of the content.
    const auto made = [&](const std::vector<Tool>& tools) {
      grammar::Rules content;
      content.start = content.add_rule();
      content.add(content.start, {});
      const std::shared_ptr<grammar::RegexStore> store = content.regex;
      EXPECT_FALSE(answer_rules(format, tools, {}, std::move(content)).ok());
      return store->size();
    };
    const Tool bad = tool_of("bad", {{"z", refused}});
    const uint32_t alone = made({bad});
    EXPECT_EQ(made({bad, good}), alone);
    EXPECT_GT(made({good, bad}), alone);
    // Tags are read from the last property to the first; a schema is read whole or not at all.
    const bool tags =
        format.calls.shape == CallShape::kTagged || format.calls.shape == CallShape::kLoose;
    if (tags) {
      EXPECT_EQ(made({tool_of("bad", then_refused)}), alone);
    }
  }
}

}  // namespace
}  // namespace skein::dialog
