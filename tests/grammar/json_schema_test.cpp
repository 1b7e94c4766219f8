#include <gtest/gtest.h>

#include "grammar/grammar_helpers.h"
#include "grammar/json_value.h"

namespace skein::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::schema_accepts;
using testing::schema_error;
using testing::schema_rules;

struct Case {
  const char* schema;
  std::vector<const char*> taken;
  std::vector<const char*> refused;
};

const Case kCases[] = {
    {R"({"type":["integer","null"]})",
     {"0", "-12", "null"},
     {"1.5", "01", "-", "true", "1 ", "\"1\""}},
    {R"({"type":"number"})", {"-0.5", "1e5", "12E-10"}, {"1.", ".5", "+1", "1e1234"}},
    {R"({"type":"string"})",
     {R"("a\n\u001f é😀")", R"("\ud83d\ude00")"},
     {R"("\ud83d")", R"("\u0061")", "\"a\nb\"", "\"\xff\""}},
    {R"({"type":"integer","minimum":3,"exclusiveMaximum":12})",
     {"3", "11"},
     {"2", "12", "3.0", "-3"}},
    {R"({"minimum":1.5,"maximum":10,"exclusiveMaximum":true,"type":"number"})",
     {"1.5", "9.999", "2"},
     {"1.49", "10", "10.0"}},
    {R"({"multipleOf":0.01,"type":"number"})", {"0.5", "3", "1.25"}, {"0.005"}},
    // The multiples of several are those of their least common multiple: 0.12, 2100000000, 15.
    {R"({"type":"number","allOf":[{"multipleOf":0.06},{"multipleOf":0.04}]})",
     {"0.12", "0.24", "12", "-3.6", "0"},
     {"0.06", "0.04", "0.1", "1"}},
    {R"({"type":"number","allOf":[{"multipleOf":700000000},{"multipleOf":0.03}]})",
     {"2100000000", "-4200000000", "0"},
     {"700000000", "0.03", "2.1"}},
    {R"({"type":"integer","allOf":[{"multipleOf":2.5},{"multipleOf":3},{"multipleOf":1.5}]})",
     {"15", "30", "0"},
     {"5", "7.5", "3", "10"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("éé日")", R"("\n\n")"},
     {R"("a")", R"("abcd")"}},
    {R"({"type":"string","pattern":"^\\d+x?$"})",
     {R"("12")", R"("1x")"},
     {R"("x")", R"("1x1")", R"("")"}},
    {R"({"type":"string","pattern":"\\n"})", {R"("a\nb")", R"("\u000a")"}, {R"("n")", R"("\\n")"}},
    {R"({"type":"string","format":"date"})",
     {R"("2024-02-29")"},
     {R"("2023-02-29")", R"("2024-13-01")"}},
    {R"({"type":"string","format":"ipv6"})",
     {R"("::1")", R"("1:2:3:4:5:6:7:8")"},
     {R"("1:2:3")", R"("1::2::3")"}},
    {R"({"type":"string","format":"uuid"})",
     {R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")"},
     {R"("2eb8aa08")"}},
    {R"({"format":"of-my-own","type":"string"})", {R"("anything")"}, {}},
    {R"({"enum":["a\"b",1.0,[1,{"x":null}],true]})",
     {R"("a\"b")", "1", "1.0", R"([1, {"x":null}])", "true"},
     {"2", "false", "[1]"}},
    {R"({"const":{"a":1,"b":[]}})",
     {R"({"a":1,"b":[]})"},
     {R"({"a":1})", R"({"a":1,"b":[],"c":1})"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1,"maxItems":3})",
     {"[1]", R"([1,"a"])", R"([1, "a",null])"},
     {"[]", R"(["a"])", R"([1,"a",null,null])", R"([1,"a",1])"}},
    {R"({"items":[{"type":"integer"}],"additionalItems":false,"type":"array"})",
     {"[]", "[1]"},
     {"[1,2]"}},
    {R"({"type":"array","uniqueItems":true,"items":{"type":["number","string"]}})",
     {"[1,2,\"1\"]", "[1.5,1.25]", R"(["a","A"])"},
     {"[1,1]", "[1,1.0]", "[1.50,1.5]", R"(["a","b","a"])", R"(["\n","\u000a"])"}},
    {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b"]},"minItems":2})",
     {R"(["a","b"])", R"(["b","a"])"},
     {R"(["a","a"])", R"(["a"])"}},
    {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{}},"required":["a"]})",
     {R"({"b":1,"a":2})", R"({"a":{}})", "{\n  \"a\": 1\n}"},
     {R"({"a":1,"b":2})", R"({"b":1})", R"({"a":1,"c":1})", "{\"a\":  1}"}},
    {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
     {R"({"a":"x","b":1,"c":2})", R"({"b":1})"},
     {R"({"b":1,"b":2})", R"({"b":"x"})", R"({"b":1,"a":1})"}},
    {R"({"type":"object","minProperties":2,"maxProperties":3})",
     {R"({"x":1,"y":{"x":1,"y":2}})"},
     {"{}", R"({"x":1})", R"({"a":1,"b":2,"c":3,"d":4})"}},
    {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,"additionalProperties":false})",
     {R"({"a":1,"c":1})", R"({"b":1,"c":1})"},
     {R"({"c":1})", "{}"}},
    {R"({"type":"object","patternProperties":{"^s_":{"type":"string"}},"additionalProperties":false})",
     {R"({"s_a":"x"})", "{}"},
     {R"({"s_a":1})", R"({"t":"x"})"}},
    {R"({"type":"object","propertyNames":{"maxLength":2}})", {R"({"ab":1})"}, {R"({"abc":1})"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
     {"1", R"("a")"},
     {R"("ab")", "null"}},
    {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}}},{"required":["a"],"properties":{"a":{"minimum":5}}}]})",
     {R"({"a":5})"},
     {R"({"a":4})", "{}"}},
    {R"({"oneOf":[{"type":"integer"},{"minimum":2,"type":"number"}]})", {"1", "2.5"}, {"3", "1.5"}},
    {R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})",
     {R"({"a":1})", R"({"b":1,"c":1})"},
     {R"({"a":1,"b":1})", "{}"}},
    {R"({"not":{"type":"object"}})", {"[]", "1", "null"}, {"{}"}},
    {R"({"type":"string","not":{"pattern":"^a"}})", {R"("b")", R"("")"}, {R"("ab")"}},
    {R"({"type":"object","properties":{"a":{"enum":[1,2]},"b":{}},"if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"required":["b"]}})",
     {R"({"a":1,"b":0})", R"({"a":2})", "{}"},
     {R"({"a":1})"}},
    {R"({"type":"object","properties":{"b":{},"a":{}},"dependentRequired":{"a":["b"]}})",
     {R"({"b":1,"a":1})", R"({"b":1})"},
     {R"({"a":1})"}},
    {R"({"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}},"$ref":"#/$defs/n"})",
     {"{}", R"({"next":{"next":{}}})"},
     {R"({"next":1})"}},
    {R"({"type":"string","nullable":true})", {"null", R"("a")"}, {"1"}},
    {"true", {"1", R"({"a":[{}]})"}, {"", "nul"}},
};

TEST(JsonSchema, Cases) {
  for (const Case& one : kCases) {
    const auto grammar = compiled(schema_rules(one.schema));
    for (const char* text : one.taken)
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " takes " << text;
    for (const char* text : one.refused)
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " refuses " << text;
  }
}

TEST(JsonSchema, ClosedUnlessOpen) {
  const char* schema = R"({"type":"object","properties":{"a":{}}})";
  EXPECT_FALSE(schema_accepts(schema, R"({"a":1,"b":2})"));
  EXPECT_TRUE(schema_accepts(schema, R"({"a":1,"b":2})", {.strict = true, .open = true}));
  EXPECT_TRUE(schema_accepts(R"({"type":"object","required":["a"]})", R"({"a":1,"b":2})"));
}

TEST(JsonSchema, WhiteSpaceIsBounded) {
  const auto grammar = compiled(schema_rules(R"({"type":"array"})"));
  EXPECT_TRUE(accepts(grammar, "[\n\t\t1 , 2\n]"));
  EXPECT_TRUE(accepts(grammar, "[\n" + std::string(20, ' ') + "1]"));
  EXPECT_FALSE(accepts(grammar, "[\n" + std::string(21, ' ') + "1]"));
  EXPECT_FALSE(accepts(grammar, "[\n\n1]"));
  EXPECT_FALSE(accepts(grammar, "[1] "));
}

TEST(JsonSchema, WhatIsNotEnforcedIsNamed) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties":{"a":{"contains":{"const":1}}}})", "/properties/a/contains"},
      {R"({"properties":{"a":{"not":{"items":{"type":"null"}}}}})", "/properties/a/not"},
      {R"({"pattern":"\\bx"})", "/pattern"},
      {R"({"$ref":"http://example.com/x.json"})", "/$ref"},
      {R"({"$dynamicRef":"#x"})", "/$dynamicRef"},
      {R"({"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})",
       "/unevaluatedProperties"},
      {R"({"items":{"type":"array"},"uniqueItems":true})", "/uniqueItems"},
  };
  for (const auto& [schema, pointer] : cases) {
    auto relaxed = json_schema_rules(schema, {});
    ASSERT_TRUE(relaxed.ok()) << schema;
    EXPECT_EQ(relaxed->relaxed, std::vector<std::string>{pointer}) << schema;
    EXPECT_EQ(schema_error(schema), std::string("unsupported_schema ") + pointer);
  }
  // Relaxed, it is a superset.
  EXPECT_TRUE(schema_accepts(R"({"type":"array","contains":{"const":1}})", "[2]", {}));
}

TEST(JsonSchema, RefusalsSayWhere) {
  EXPECT_EQ(schema_error("{"), "invalid_schema ");
  EXPECT_EQ(schema_error("[]"), "invalid_schema ");
  EXPECT_EQ(schema_error(R"({"properties":{"a/b":{"type":"int"}}})"),
            "invalid_schema /properties/a~1b/type");
  EXPECT_EQ(schema_error(R"({"minLength":-1})"), "invalid_schema /minLength");
  EXPECT_EQ(schema_error(R"({"pattern":"("})"), "invalid_regex /pattern");
  EXPECT_EQ(schema_error(R"({"$ref":"#/nowhere"})"), "invalid_schema /$ref");
  for (const char* nothing :
       {"false", R"({"$ref":"#"})", R"({"enum":[]})",
        R"({"type":"array","minItems":2,"maxItems":1})",
        R"({"type":"integer","minimum":5,"maximum":4})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})",
        R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})",
        R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2]},"minItems":3})"}) {
    EXPECT_EQ(schema_error(nothing), "unsatisfiable_schema ") << nothing;
  }
}

// A keyword that is not what it must be is an error, and never a keyword less.
TEST(JsonSchema, KeywordsHaveTheirTypes) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"type", "7"},
      {"type", "null"},
      {"type", "[]"},
      {"type", "[\"string\",7]"},
      {"required", "[5]"},
      {"required", "\"a\""},
      {"properties", "5"},
      {"patternProperties", "5"},
      {"prefixItems", "5"},
      {"dependentRequired", "5"},
      {"dependentRequired", R"({"a":"b"})"},
      {"dependentRequired", R"({"a":[1]})"},
      {"dependentSchemas", "[]"},
      {"dependencies", "true"},
      {"uniqueItems", "\"yes\""},
      {"nullable", "1"},
      {"$defs", "5"},
      {"definitions", "[]"},
      {"format", "5"},
      {"minimum", "true"},
      {"maximum", "false"},
      {"multipleOf", "true"},
      {"enum", "{}"},
      {"items", "5"},
      {"additionalProperties", "\"no\""},
      {"allOf", "{}"},
      {"not", "[]"},
      {"$ref", "5"},
  };
  for (const auto& [keyword, value] : wrong) {
    const std::string schema =
        fmt::format(R"({{"properties":{{"a":{{"{}":{}}}}},"required":["a"]}})", keyword, value);
    const std::string error = schema_error(schema);
    EXPECT_TRUE(error.starts_with(fmt::format("invalid_schema /properties/a/{}", keyword)))
        << schema << ": " << error;
  }
  // As old drafts have them.
  EXPECT_EQ(schema_error(R"({"required":true,"exclusiveMinimum":true,"minimum":1})"), "");
}

// A schema inside a text, whose references are to all of it, and objects alone.
TEST(JsonSchema, APartOfATextAndItsObjects) {
  const char* text = R"({"properties":{"a/":{"const":1},"b":{"$ref":"#/properties/a~1"}}})";
  EXPECT_TRUE(schema_accepts(text, "1", {.strict = true, .at = "/properties/b"}));
  EXPECT_FALSE(schema_accepts(text, "2", {.strict = true, .at = "/properties/b"}));
  EXPECT_EQ(schema_error(text, {.at = "/properties/c"}), "invalid_schema /properties/c");
  EXPECT_TRUE(schema_accepts("{}", R"({"a":1})", {.objects_only = true}));
  EXPECT_FALSE(schema_accepts("{}", "1", {.objects_only = true}));
  EXPECT_FALSE(schema_accepts(R"({"type":["object","null"]})", "null", {.objects_only = true}));
  EXPECT_EQ(schema_error(R"({"type":"string"})", {.objects_only = true}), "unsatisfiable_schema ");
}

std::string nested(size_t depth, const std::string& front, const std::string& back) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += front;
  text += "{}";
  for (size_t i = 0; i < depth; ++i) text += back;
  return text;
}

TEST(JsonSchema, Limits) {
  const auto code = [](const std::string& schema) { return schema_error(schema).substr(0, 18); };
  EXPECT_EQ(code(nested(kMaxSchemaDepth, R"({"items":)", "}")), "");
  EXPECT_EQ(code(nested(kMaxSchemaDepth + 1, R"({"items":)", "}")), "schema_too_complex");
  EXPECT_EQ(code(nested(1'000'000, "[", "]")), "schema_too_complex");
  EXPECT_EQ(code(R"({"allOf":[{"multipleOf":99991},{"multipleOf":99989}]})"), "schema_too_complex");
  EXPECT_EQ(code("{" + std::string(kMaxSchemaBytes - 2, ' ') + "}"), "");
  EXPECT_EQ(code("{" + std::string(kMaxSchemaBytes - 1, ' ') + "}"), "schema_too_complex");
  const auto list = [](size_t count, const std::function<std::string(size_t)>& make) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + make(i);
    return text;
  };
  const auto number = [](size_t i) { return std::to_string(i); };
  EXPECT_EQ(code(R"({"enum":[)" + list(50'000, number) + "]}"), "");
  const auto none = [](size_t) { return std::string("1"); };
  EXPECT_EQ(code(R"({"enum":[)" + list(kMaxEnumValues + 1, none) + "]}"), "schema_too_complex");
  const auto reference = [](size_t) { return std::string(R"({"$ref":"#/$defs/a"})"); };
  const auto references = [&](size_t count) {
    return R"({"$defs":{"a":{}},"prefixItems":[)" + list(count, reference) + "]}";
  };
  EXPECT_EQ(code(references(kMaxReferences)), "");
  EXPECT_EQ(schema_error(references(kMaxReferences + 1)),
            "schema_too_complex /prefixItems/10000/$ref");
  const auto property = [](size_t i) { return "\"p" + std::to_string(i) + "\":true"; };
  EXPECT_EQ(code(R"({"properties":{)" + list(kMaxProperties + 1, property) + "}}"),
            "schema_too_complex");
  const auto branch = [](size_t i) { return R"({"required":["p)" + std::to_string(i) + "\"]}"; };
  EXPECT_EQ(code(R"({"type":"object","anyOf":[)" + list(kMaxUnion, branch) + "]}"), "");
  EXPECT_EQ(code(R"({"type":"object","anyOf":[)" + list(kMaxUnion + 1, branch) + "]}"),
            "schema_too_complex");
  EXPECT_EQ(code(R"({"minLength":1000001})"), "schema_too_complex");
  EXPECT_EQ(code(R"({"type":"string","maxLength":1000000})"), "");
}

TEST(JsonSchema, WhiteSpaceCanBeSaid) {
  const char* schema = R"({"type":"object","properties":{"a":{"type":"array"}},"required":["a"]})";
  const auto takes = [&](const char* white_space, const char* text) {
    return schema_accepts(schema, text, {.strict = true, .white_space = white_space});
  };
  EXPECT_TRUE(takes("", R"({"a":[1,{"b":2}]})"));
  EXPECT_FALSE(takes("", R"({"a": [1]})"));
  EXPECT_TRUE(takes("[ \\t]{0,3}", "{ \"a\" :\t  [1]}"));
  EXPECT_FALSE(takes("[ \\t]{0,3}", "{    \"a\":[1]}"));
  EXPECT_FALSE(takes("[ \\t]{0,3}", "{\n\"a\":[1]}"));
  EXPECT_TRUE(takes(" ", R"({ "a" : [ 1 ] })"));
  EXPECT_FALSE(takes(" ", R"({ "a" : [1 ] })"));
  EXPECT_TRUE(takes("\\s*", "{\r\n\t\"a\":[1]}"));
  EXPECT_FALSE(takes("\\s*", "{\u00a0\"a\":[1]}"));  // a space elsewhere, not in JSON
  for (const char* bad : {"[ ,]*", "a?", "(", "\\u00a0"}) {
    auto result = json_schema_rules("{}", {.white_space = bad});
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().where, "whitespace_pattern");
    EXPECT_EQ(result.error().code, FormCode::kInvalidRegex);
  }
}

// The schemas that other engines need seconds or gigabytes for.
TEST(JsonSchema, HostileSchemasAreTakenOrRefused) {
  std::string one_of = R"({"type":"integer"})";
  for (int i = 0; i < 6; ++i)
    one_of = R"({"oneOf":[)" + one_of + "," + one_of + "," + one_of + "]}";
  EXPECT_EQ(schema_error(one_of), "unsatisfiable_schema ");
  std::string laughs = R"({"$defs":{"d0":{"type":"string"})";
  for (int i = 1; i <= 25; ++i) {
    const std::string below = R"({"$ref":"#/$defs/d)" + std::to_string(i - 1) + "\"}";
    laughs += ",\"d" + std::to_string(i) + R"(":{"type":"array","prefixItems":[)" + below + "," +
              below + R"(],"items":false})";
  }
  EXPECT_EQ(schema_error(laughs + R"(},"$ref":"#/$defs/d25"})"), "");
  std::string members;
  for (int i = 0; i < 200; ++i) members += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
  EXPECT_TRUE(schema_accepts(R"({"properties":{)" + members + "}}", R"({"p3":1,"p199":2})"));
  EXPECT_TRUE(
      schema_accepts(R"({"type":"array","items":{"type":"integer"},"maxItems":100000})", "[1,2]"));
  EXPECT_TRUE(
      schema_accepts(R"({"type":"string","pattern":"^(a*)*b$"})", "\"aaaaaaaaaaaaaaaaaaaaaaaab\""));
  EXPECT_NE(schema_error("{\"pattern\":\"a\\u0000b\"}"), "x");
  EXPECT_EQ(schema_error(R"({"pattern":"\ud800"})"), "invalid_schema ");
}

}  // namespace
}  // namespace skein::grammar
