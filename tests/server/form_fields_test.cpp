#include "server/api/form_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/responses_request.h"
#include "server/bodies.h"

namespace skein::api {
namespace {

using testing::chat;
using testing::join;
using testing::kHello;

TEST(FormFields, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {chat(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema"},
      {chat(R"("response_format":{"type":"json_schema","json_schema":{}})"),
       "response_format.json_schema.schema"},
      {chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})"),
       "response_format.json_schema.schema"},
      {chat(R"("guided_json":7)"), "guided_json"},
      {chat(R"("regex":["a"])"), "regex"},
      {chat(R"("structured_outputs":{"choice":[]})"), "structured_outputs.choice"},
      {chat(R"("structured_outputs":{"choice":["a",2]})"), "structured_outputs.choice[1]"},
      {chat(R"("regex":"a","guided_regex":"b")"), "regex"},
      {chat(R"("structured_outputs":{"json":{},"regex":"a"})"), "structured_outputs.regex"},
  };
  for (const auto& [body, param] : bodies) {
    const auto parsed = parse_chat_request(body);
    ASSERT_FALSE(parsed.ok()) << body;
    EXPECT_EQ(parsed.error().status, 400) << body;
    EXPECT_EQ(parsed.error().param, param) << body;
  }
  for (const char* fields :
       {R"("response_format":{"type":"structural_tag"})", R"("structural_tag":"x")",
        R"("guided_json":{},"guided_decoding_backend":"lm-format-enforcer:x")",
        R"("structured_outputs":{"json":{},"_backend":"lm-format-enforcer"})",
        R"("grammar":"x","grammar_lazy":true)"}) {
    const auto parsed = parse_chat_request(chat(fields));
    ASSERT_FALSE(parsed.ok()) << fields;
    EXPECT_EQ(parsed.error().status, 501) << fields;
  }
}

FormSpec form_of(const std::string& fields) {
  auto request = parse_chat_request(chat(fields));
  EXPECT_TRUE(request.ok()) << fields << ": " << request.error().message;
  EXPECT_TRUE(request.ok() && request->options.form) << fields;
  return request.ok() && request->options.form ? request->options.form->spec : FormSpec{};
}

TEST(FormFields, AFormInEverybodysWords) {
  using Kind = FormSpec::Kind;
  // Members keep their order, for the order of the properties is the order of the answer.
  const std::string schema = R"({"type":"object","properties":{"z":{},"a":{}}})";
  const FormSpec asked{.kind = Kind::kJsonSchema, .text = schema};
  for (const std::string& fields :
       {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + schema +
            "}}",
        R"("response_format":{"type":"json_schema","schema":)" + schema + "}",
        R"("response_format":{"type":"json_object","schema":)" + schema + "}",
        R"("json_schema":)" + schema, R"("guided_json":)" + schema,
        R"("structured_outputs":{"json":)" + schema + "}"}) {
    EXPECT_EQ(form_of(fields), asked) << fields;
  }
  FormSpec strict = asked;
  strict.strict = true;
  EXPECT_EQ(
      form_of(R"("response_format":{"type":"json_schema","json_schema":{"strict":true,"schema":)" +
              schema + "}}"),
      strict);
  FormSpec open = asked;
  open.open = true;
  EXPECT_EQ(form_of(R"("structured_outputs":{"disable_additional_properties":false,"json":)" +
                    schema + "}"),
            open);
  EXPECT_EQ(form_of(R"("json_schema":"{\"a\": 1.50}")").text, R"({"a": 1.50})")
      << "text stays as it is";
  EXPECT_EQ(form_of(R"("response_format":{"type":"json_object"})").kind, Kind::kJsonObject);
  EXPECT_EQ(form_of(R"("structured_outputs":{"json_object":true})").kind, Kind::kJsonObject);
  EXPECT_EQ(form_of(R"("guided_choice":["a","b"])").choices, (std::vector<std::string>{"a", "b"}));
  for (const char* name : {"regex", "guided_regex"}) {
    EXPECT_EQ(form_of(join({"\"", name, R"(":"a+")"})),
              (FormSpec{.kind = Kind::kRegex, .text = "a+"}));
  }
  for (const char* name : {"grammar", "ebnf", "guided_grammar"}) {
    EXPECT_EQ(form_of(join({"\"", name, R"(":"root ::= start\nstart ::= \"a\"")"})).kind,
              Kind::kGbnf);
  }
  for (const char* text :
       {R"(start: \"a\")", R"(%ignore WS\n ?start : a\na: \"b\")", R"(x: y\nstart.2: x)"}) {
    EXPECT_EQ(form_of(join({R"("guided_grammar":")", text, "\""})).kind, Kind::kLark) << text;
  }
  auto anthropic = parse_messages_request(
      join({R"({"max_tokens":5,"output_config":{"format":{"type":"json_schema","schema":)", schema,
            "}},", kHello, "}"}),
      false);
  ASSERT_TRUE(anthropic.ok()) << anthropic.error().message;
  EXPECT_EQ(anthropic->options.form->spec, strict);
  EXPECT_EQ(anthropic->options.form->field, "output_config.format.schema");
  auto none =
      parse_chat_request(chat(R"("response_format":{"type":"text"},"grammar":"","regex":null)"));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->options.form);
}

TEST(FormFields, WhiteSpaceCanBeSaid) {
  const auto space_of = [](const std::string& fields) { return form_of(fields).white_space; };
  EXPECT_EQ(space_of(R"("structured_outputs":{"json":{}})"), std::nullopt);
  EXPECT_EQ(space_of(R"("structured_outputs":{"json":{},"whitespace_pattern":" ?"})"), " ?");
  EXPECT_EQ(space_of(R"("structured_outputs":{"json":{},"disable_any_whitespace":true})"), "");
  EXPECT_EQ(space_of(R"("structured_outputs":{"json_object":true,"disable_any_whitespace":true})"),
            "");
  EXPECT_EQ(space_of(R"("guided_json":{},"guided_whitespace_pattern":" ")"), " ");
  EXPECT_EQ(space_of(R"("response_format":{"type":"json_object"},"guided_whitespace_pattern":" ")"),
            " ");
  EXPECT_EQ(space_of(R"("regex":"a","guided_whitespace_pattern":" ")"), std::nullopt);
  EXPECT_EQ(parse_chat_request(chat(R"("structured_outputs":{"json":{},"whitespace_pattern":"x",)"
                                    R"("disable_any_whitespace":true})"))
                .error()
                .param,
            "structured_outputs.whitespace_pattern");
  const grammar::FormError wrong{grammar::FormCode::kInvalidRegex, "why", "whitespace_pattern"};
  EXPECT_EQ(form_refused(wrong, "structured_outputs.json").param,
            "structured_outputs.whitespace_pattern");
  EXPECT_EQ(form_refused(wrong, "guided_json").param, "guided_whitespace_pattern");
}

// Nobody's words are ignored because they came to another endpoint.
TEST(FormFields, EveryDialectReadsThem) {
  for (const char* field :
       {R"("structured_outputs":{"regex":"a"})", R"("guided_regex":"a")", R"("regex":"a")"}) {
    auto messages =
        parse_messages_request(join({R"({"max_tokens":5,)", field, ",", kHello, "}"}), false);
    ASSERT_TRUE(messages.ok()) << messages.error().message;
    ASSERT_TRUE(messages->options.form) << field;
    EXPECT_EQ(messages->options.form->spec.text, "a");
    auto responses = parse_responses_request(join({R"({"input":"x",)", field, "}"}), {});
    ASSERT_TRUE(responses.ok()) << responses.error().message;
    ASSERT_TRUE(responses->options.form) << field;
    EXPECT_EQ(responses->options.form->spec.text, "a");
  }
  EXPECT_EQ(parse_responses_request(
                R"({"input":"x","text":{"format":{"type":"json_object"}},"regex":"a"})", {})
                .error()
                .param,
            "regex");
}

TEST(FormFields, TheModelIsToldOfTheFormWhereThatIsWanted) {
  auto plain = parse_chat_request(chat(R"("guided_choice":["a","b"])"));
  EXPECT_EQ(plain->messages.size(), 1U);
  auto told = parse_chat_request(chat(R"("guided_choice":["a","b"],"describe_form":true)"));
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(told->messages[0]["role"], "system");
  EXPECT_EQ(told->messages[0]["content"],
            "Answer with one of these texts, and with nothing else:\na\nb");
  auto added = parse_messages_request(
      join({R"({"max_tokens":5,"system":"s","describe_form":true,"output_config":{"format":)",
            R"({"type":"json_schema","schema":{"type":"null"}}},)", kHello, "}"}),
      false);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(added->messages[0]["content"],
            "s\n\nAnswer with JSON that matches this JSON Schema, and with nothing else:\n"
            R"({"type":"null"})");
  EXPECT_EQ(parse_chat_request(chat(R"("describe_form":true)")).error().param, "describe_form");
  EXPECT_EQ(
      parse_completion_request(R"({"prompt":"x","regex":"a","describe_form":true})").error().param,
      "describe_form");
}

TEST(FormFields, RelaxedKeywordsInAHeader) {
  EXPECT_EQ(relaxed_header({"/a/not", "", "/b c/%,\r\n"}), "/a/not, /, /b%20c/%25%2C%0D%0A");
  std::vector<std::string> many(10'000, "/properties/a/not");
  const std::string header = relaxed_header(many);
  EXPECT_LT(header.size(), 8'000U);
  EXPECT_THAT(header, ::testing::EndsWith(" more"));
}

}  // namespace
}  // namespace skein::api
