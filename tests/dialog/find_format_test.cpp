#include "dialog/find_format.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <sstream>

#include "dialog/find_calls.h"
#include "dialog/history.h"
#include "dialog/known_formats.h"
#include "dialog/round_trip.h"

namespace skein::dialog {
namespace {

using testing::must_find;
using testing::own_template;
using testing::RoundTrip;
using testing::template_source;

struct Expected {
  const char* file;
  const char* calls;
  FormatSource source;
  const char* reasoning;
};

constexpr Expected kExpected[] = {
    {"actions", "command", FormatSource::kTemplate, "start_thinking"},
    {"call_list", "mistral", FormatSource::kTemplate, "none"},
    {"channels", "harmony", FormatSource::kTemplate, "harmony"},
    {"fenced", "deepseek", FormatSource::kTemplate, "think"},
    {"hermes", "hermes", FormatSource::kTemplate, "think"},
    {"key_value", "glm", FormatSource::kTemplate, "think"},
    {"llama", "llama-3", FormatSource::kTemplate, "none"},
    {"name_args", "mistral", FormatSource::kTemplate, "mistral-think"},
    {"no_tools", "hermes", FormatSource::kGeneric, "none"},
    {"numbered", "kimi-k2", FormatSource::kTemplate, "think"},
    {"parameters", "qwen3-coder", FormatSource::kTemplate, "none"},
    {"text_arguments", "functionary", FormatSource::kTemplate, "none"},
    {"told_escapes", "function-gemma", FormatSource::kSignature, "none"},
    {"told_only", "hermes", FormatSource::kSignature, "none"},
    {"told_python", "lfm2", FormatSource::kSignature, "none"},
    {"told_tags", "seed-oss", FormatSource::kSignature, "seed:think"},
    {"typed_tags", "tagged", FormatSource::kTemplate, "none"},
};

class FindFormat : public ::testing::TestWithParam<Expected> {};

TEST_P(FindFormat, NamesWhatTheTemplateWrites) {
  const ChatFormat format = must_find(template_source(own_template(GetParam().file)));
  EXPECT_EQ(format.calls.name, GetParam().calls);
  EXPECT_EQ(source_name(format.calls_from), source_name(GetParam().source));
  EXPECT_EQ(format.reasoning.name, GetParam().reasoning);
  EXPECT_EQ(format.habits.writes_calls, GetParam().source == FormatSource::kTemplate);
}

TEST_P(FindFormat, WhatTheTemplateWritesIsParsedBackInEveryChunking) {
  if (GetParam().source != FormatSource::kTemplate) return;  // its template writes no calls
  RoundTrip trip(template_source(own_template(GetParam().file)), 17);
  EXPECT_GT(trip.run(25), 5U);
}

INSTANTIATE_TEST_SUITE_P(OwnTemplates, FindFormat, ::testing::ValuesIn(kExpected),
                         [](const auto& info) { return std::string(info.param.file); });

// A format that is asked for by its name is the one that templates of that family write.
TEST(NamedFormats, WriteWhatTheirTemplatesWrite) {
  for (const auto& [file, name] : {std::pair{"call_list", "mistral"},
                                   {"hermes", "hermes"},
                                   {"hermes", "generic"},
                                   {"llama", "llama-3"},
                                   {"key_value", "glm"},
                                   {"actions", "command"},
                                   {"parameters", "qwen3-coder"}}) {
    SCOPED_TRACE(name);
    const ChatFormat found = must_find(template_source(own_template(file)));
    const auto named = calls_by_name(name);
    ASSERT_TRUE(named);
    EXPECT_EQ(named->parallel, found.calls.parallel);
    for (const std::vector<ToolCall>& calls : unseen_calls(found.calls.parallel)) {
      EXPECT_EQ(write_calls(*named, calls), write_calls(found.calls, calls));
      EXPECT_TRUE(parses_back(*named, found.reasoning, calls));
    }
  }
}

TEST(NamedFormats, AreReadAsTheyAreWritten) {
  for (const char* name :
       {"glm", "minimax-m2", "command", "hermes", "kimi-k2", "deepseek", "seed-oss"}) {
    SCOPED_TRACE(name);
    const auto named = calls_by_name(name);
    ASSERT_TRUE(named);
    EXPECT_EQ(name_of(*named), name);
    for (const std::vector<ToolCall>& calls : unseen_calls(named->parallel)) {
      EXPECT_TRUE(parses_back(*named, *reasoning_by_name("think"), calls));
    }
  }
}

TEST(NamedFormats, EachKindOfThoughtHasAName) {
  const ChatFormat found = must_find(template_source(own_template("name_args")));
  const auto named = reasoning_by_name("mistral-think");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->begin, "[THINK]");
  EXPECT_EQ(named->end, found.reasoning.end);
  EXPECT_EQ(reasoning_by_name("think")->begin, "<think>");
}

// serve_options.def lists them for people.
TEST(NamedFormats, AreThoseThatTheServerOffers) {
  std::ifstream file(SKEIN_SOURCE_DIR "/src/apps/serve_options.def");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto offered = [&](const std::string& option) {
    const size_t at = text.find("one_of(\"auto|", text.find(", " + option + ", ")) + 13;
    std::set<std::string> names;
    std::istringstream list(text.substr(at, text.find('"', at) - at));
    for (std::string name; std::getline(list, name, '|');) names.insert(name);
    return names;
  };
  const auto set_of = [](const std::vector<std::string>& names) {
    return std::set<std::string>(names.begin(), names.end());
  };
  EXPECT_EQ(offered("tool_format"), set_of(call_format_names()));
  EXPECT_EQ(offered("reasoning_format"), set_of(reasoning_format_names()));
  for (const std::string& name : call_format_names()) EXPECT_TRUE(calls_by_name(name)) << name;
  for (const std::string& name : reasoning_format_names()) {
    EXPECT_TRUE(reasoning_by_name(name)) << name;
  }
}

TEST(FindFormatHabits, AreWhatTheTemplateDoes) {
  const auto habits = [](const char* name) {
    return must_find(template_source(own_template(name))).habits;
  };
  EXPECT_TRUE(habits("call_list").nine_character_ids);
  EXPECT_FALSE(habits("hermes").nine_character_ids);
  EXPECT_FALSE(habits("call_list").takes_later_system);
  EXPECT_TRUE(habits("hermes").takes_later_system);
  EXPECT_TRUE(habits("text_arguments").arguments_as_text);
  EXPECT_FALSE(habits("hermes").arguments_as_text);
  EXPECT_TRUE(habits("hermes").writes_results);
  EXPECT_FALSE(habits("no_tools").shows_tools);
  EXPECT_FALSE(habits("no_tools").writes_results);
  EXPECT_TRUE(habits("told_only").shows_tools);
  EXPECT_FALSE(must_find(template_source(own_template("llama"))).calls.parallel);
}

TEST(FindFormatReasoning, IsSeenInThePrompt) {
  const ChatFormat format = must_find(template_source(own_template("fenced")));
  EXPECT_TRUE(opens_reasoning(format, "<｜Assistant｜><think>\n"));
  EXPECT_FALSE(opens_reasoning(format, "<｜Assistant｜><think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(ChatFormat(), "<think>"));
}

// A template whose calls cannot be written again gets the generic format, whatever it looks like.
std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

ChatTemplateSource hermes_with(std::string_view what, std::string_view by) {
  ChatTemplateSource source = template_source(own_template("hermes"));
  source.text = replaced(*source.text, what, by);
  return source;
}

// Some name the types of properties, and know no null.
TEST(FindFormatChecks, ATemplateThatKnowsNoNull) {
  const ChatFormat format = must_find(hermes_with(
      "{{- '\\n' + (tool | tojson) }}",
      "{{- '\\n' + (tool | tojson) }}{%- for name, spec in "
      "(tool.function.parameters.properties or {}).items() %}{%- if spec.type == 'null' %}"
      "{{- raise_exception('null') }}{%- endif %}{%- endfor %}"));
  EXPECT_EQ(format.calls.name, "hermes");
  EXPECT_EQ(source_name(format.calls_from), "template");
  EXPECT_TRUE(format.habits.shows_tools);
}

// Calls only beside a content that is null: a text and calls are then written by us.
TEST(FindFormatChecks, ATemplateThatWantsNoContentBesideCalls) {
  const ChatTemplateSource source =
      hermes_with("message.tool_calls or []",
                  "((message.tool_calls or []) if message.content is none else [])");
  const ChatFormat format = must_find(source);
  EXPECT_EQ(source_name(format.calls_from), "template");
  EXPECT_TRUE(format.habits.null_content);
  EXPECT_FALSE(must_find(template_source(own_template("hermes"))).habits.null_content);
  RoundTrip trip(source, 17);
  EXPECT_GT(trip.run(25), 5U);
  const auto content_of = [&](const char* said) {
    const History history = prepare_history(
        format,
        OrderedJson::parse(
            std::string(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": )") +
            said + R"(, "tool_calls": [{"id": "1", "type": "function",
                           "function": {"name": "f", "arguments": "{}"}}]}])"),
        OrderedJson());
    return history.messages.back();
  };
  EXPECT_TRUE(content_of("\"\"")["content"].is_null());
  EXPECT_TRUE(content_of("\"\"").contains("tool_calls"));
  EXPECT_FALSE(content_of("\"So.\"").contains("tool_calls")) << "it stands in the text";
}

// Where a text is not rendered nobody knows what is around a call.
TEST(FindFormatChecks, ATurnThatDoesNotRender) {
  const ChatFormat format = must_find(hermes_with(
      "{{- message.content or '' }}",
      "{%- if message.content == 'skein_text' %}{{- raise_exception('no') }}{%- endif %}"
      "{{- message.content or '' }}"));
  EXPECT_NE(source_name(format.calls_from), "template");
}

// A thought counts if it comes back, and so do the texts without one.
TEST(FindFormatChecks, ThoughtsThatDoNotComeBack) {
  const ChatFormat format = must_find(hermes_with(
      "{{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}",
      "{{- '<|self|>' + message.reasoning_content + '<|end|><|im_start|>assistant<|user|>' }}"));
  EXPECT_EQ(format.reasoning.name, "none");
  EXPECT_EQ(format.calls.name, "hermes");
  // A word behind the marker belongs to it.
  const ChatFormat named = must_find(hermes_with(
      "{{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}",
      "{{- '<|channel>thought\\n' + message.reasoning_content + '\\n<channel|>' }}"));
  EXPECT_EQ(named.reasoning.begin, "<|channel>thought");
  EXPECT_EQ(named.reasoning.end, "<channel|>");
  EXPECT_EQ(named.reasoning.name, "channel");
}

// A call that is written otherwise behind a text is not one that is known.
TEST(FindFormatChecks, ACallBehindAText) {
  const ChatFormat format =
      must_find(hermes_with("'<tool_call>\\n{\"name\"",
                            "('<call>' if message.content else '<tool_call>') + '\\n{\"name\""));
  EXPECT_NE(source_name(format.calls_from), "template");
}

TEST(FindFormatChecks, TheTemplatesBytes) {
  ChatTemplateSource source = template_source(own_template("name_args"));
  const std::string tojson = "(call.function.arguments | tojson)";
  const size_t at = source.text->find(tojson);
  ASSERT_NE(at, std::string::npos);
  source.text->replace(at, tojson.size(),
                       "(call.function.arguments | tojson | replace('日', '?'))");
  EXPECT_EQ(must_find(source).calls_from, FormatSource::kGeneric);
  source = {};  // ChatML
  EXPECT_EQ(must_find(source).calls_from, FormatSource::kGeneric);
  source.text = "{{ raise_exception('no') }}";
  EXPECT_EQ(must_find(source).calls_from, FormatSource::kGeneric);
  source.text = "{% if %}";
  EXPECT_FALSE(find_format(source).ok());
}

}  // namespace
}  // namespace skein::dialog
