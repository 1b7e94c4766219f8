// The table of keywords in docs/STRUCTURED.md: its lines are those that are tried here.
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "grammar/grammar_helpers.h"

namespace skein::grammar {
namespace {

using testing::schema_accepts;
using testing::schema_error;

struct Sample {
  const char* schema;
  const char* taken;
  const char* refused;  // nullptr: the keyword is relaxed, or with strict the schema refused
};

struct Line {
  const char* keywords;
  const char* what;
  std::vector<Sample> samples;
};

const std::vector<Line> kTable = {
    {"`type`, `enum`, `const`, `nullable`, `properties`, `required`, `additionalProperties`, "
     "`patternProperties`, `propertyNames`, `minProperties`, `maxProperties`, `prefixItems`, "
     "`items`, `additionalItems`, `minItems`, `maxItems`, `minimum`, `maximum`, "
     "`exclusiveMinimum`, `exclusiveMaximum`, `minLength`, `maxLength`, `allOf`, `anyOf`, "
     "`dependentRequired`, `dependentSchemas`, `dependencies`, `$ref` inside the document, "
     "`$defs`, `$anchor`",
     "enforced",
     {{R"({"type":"integer","nullable":true})", "null", "\"a\""},
      {R"({"enum":[1,"a"]})", "1", "2"},
      {R"({"const":{"a":1}})", R"({"a":1})", R"({"a":2})"},
      {R"({"properties":{"a":{"const":1}},"required":["a"]})", R"({"a":1})", "{}"},
      {R"({"additionalProperties":{"const":1}})", R"({"b":1})", R"({"b":2})"},
      {R"({"patternProperties":{"^x":{"const":1}}})", R"({"x":1})", R"({"x":2})"},
      {R"({"propertyNames":{"maxLength":1}})", R"({"x":1})", R"({"xy":1})"},
      {R"({"minProperties":1,"maxProperties":1})", R"({"x":1})", "{}"},
      {R"({"prefixItems":[{"const":1}],"items":{"const":2}})", "[1,2]", "[1,1]"},
      {R"({"items":[{"const":1}],"additionalItems":false})", "[1]", "[1,1]"},
      {R"({"minItems":1,"maxItems":1})", "[1]", "[]"},
      {R"({"minimum":1,"maximum":2})", "1", "3"},
      {R"({"exclusiveMinimum":1,"exclusiveMaximum":3})", "2", "3"},
      {R"({"minLength":1,"maxLength":1})", "\"a\"", "\"ab\""},
      {R"({"allOf":[{"minimum":1},{"maximum":2}]})", "2", "3"},
      {R"({"anyOf":[{"const":1},{"const":2}]})", "2", "3"},
      {R"({"dependentRequired":{"a":["b"]}})", R"({"a":1,"b":1})", R"({"a":1})"},
      {R"({"dependentSchemas":{"a":{"required":["b"]}}})", R"({"a":1,"b":1})", R"({"a":1})"},
      {R"({"dependencies":{"a":["b"]}})", R"({"a":1,"b":1})", R"({"a":1})"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"const":1}}})", "1", "2"},
      {R"({"$ref":"#x","$defs":{"a":{"$anchor":"x","const":1}}})", "1", "2"}}},
    {"`pattern`",
     "enforced, but for back references, look-behind, `\\b` and `\\p`",
     {{R"x({"pattern":"^a(?=b)"})x", "\"ab\"", "\"ac\""},
      {R"x({"pattern":"(a)\\1"})x", "\"b\"", nullptr},
      {R"x({"pattern":"(?<=a)b"})x", "\"b\"", nullptr},
      {R"x({"pattern":"\\bfoo"})x", "\"b\"", nullptr},
      {R"x({"pattern":"\\p{L}"})x", "\"1\"", nullptr}}},
    {"`format`",
     "enforced for date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri, "
     "uri-reference, iri, json-pointer, regex; others are annotations",
     {{R"({"format":"date"})", "\"2024-01-31\"", "\"x\""},
      {R"({"format":"time"})", "\"10:00:00Z\"", "\"x\""},
      {R"({"format":"date-time"})", "\"2024-01-31T10:00:00Z\"", "\"x\""},
      {R"({"format":"duration"})", "\"P1D\"", "\"x\""},
      {R"({"format":"email"})", "\"a@b.cd\"", "\"x\""},
      {R"({"format":"hostname"})", "\"a.bc\"", "\"-\""},
      {R"({"format":"ipv4"})", "\"1.2.3.4\"", "\"x\""},
      {R"({"format":"ipv6"})", "\"::1\"", "\"x\""},
      {R"({"format":"uuid"})", "\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\"", "\"x\""},
      {R"({"format":"uri"})", "\"http://a.b/c\"", "\"x\""},
      {R"({"format":"uri-reference"})", "\"/c\"", "\"\\\\\""},
      {R"({"format":"iri"})", "\"http://a.b/c\"", "\"x\""},
      {R"({"format":"json-pointer"})", "\"/a\"", "\"a\""},
      {R"({"format":"regex"})", "\"a+\"", "\"(\""}}},
    {"`oneOf`, `not`, `if`",
     "enforced where branches exclude each other or their complement can be said; not over "
     "`items`, `contains`, closed objects and patterns of names",
     {{R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", "1", "3"},
      {R"({"not":{"type":"null"}})", "1", "null"},
      {R"({"if":{"minimum":5},"then":{"const":7}})", "7", "6"},
      {R"({"not":{"type":"array","items":{"type":"integer"}}})", "[1]", nullptr}}},
    {"`multipleOf`",
     "enforced up to nine digits",
     {{R"({"multipleOf":0.5})", "1.5", "1.3"}, {R"({"multipleOf":1234567890123})", "1", nullptr}}},
    {"`uniqueItems`",
     "enforced over scalars",
     {{R"({"items":{"type":"integer"},"uniqueItems":true})", "[1,2]", "[1,1]"},
      {R"({"items":{"type":"object"},"uniqueItems":true})", "[{},{}]", nullptr}}},
    {"`unevaluatedProperties`, `unevaluatedItems`",
     "enforced where no other schema stands beside them",
     {{R"({"properties":{"a":true},"unevaluatedProperties":false})", R"({"a":1})", R"({"b":1})"},
      {R"({"prefixItems":[true],"unevaluatedItems":false})", "[1]", "[1,2]"},
      {R"({"anyOf":[true],"unevaluatedItems":false})", "[1]", nullptr}}},
    {"`contains`, `$dynamicRef`, `$ref` to elsewhere",
     "relaxed or refused",
     {{R"({"contains":{"const":1}})", "[2]", nullptr},
      {R"({"$dynamicRef":"#a"})", "2", nullptr},
      {R"({"$ref":"http://a.b/c"})", "2", nullptr}}},
};

TEST(KeywordTable, IsWhatIsEnforced) {
  for (const Line& line : kTable) {
    std::string schemas;
    for (const Sample& sample : line.samples) {
      SCOPED_TRACE(sample.schema);
      schemas += sample.schema;
      if (sample.refused != nullptr) {
        EXPECT_TRUE(schema_accepts(sample.schema, sample.taken));
        EXPECT_FALSE(schema_accepts(sample.schema, sample.refused));
        continue;
      }
      EXPECT_TRUE(schema_error(sample.schema).starts_with("unsupported_schema /"))
          << schema_error(sample.schema);
      const auto relaxed = json_schema_rules(sample.schema, {});
      ASSERT_TRUE(relaxed.ok());
      EXPECT_TRUE(schema_accepts(sample.schema, sample.taken, {}));
    }
    const std::string_view keywords = line.keywords;
    for (size_t at = keywords.find('`'); at != std::string_view::npos;) {
      const size_t end = keywords.find('`', at + 1);
      const std::string keyword = fmt::format("\"{}\":", keywords.substr(at + 1, end - at - 1));
      EXPECT_NE(schemas.find(keyword), std::string::npos) << keyword << " is not tried";
      at = keywords.find('`', end + 1);
    }
  }
}

TEST(KeywordTable, IsThatOfTheDocumentation) {
  std::ifstream file(SKEIN_SOURCE_DIR "/docs/STRUCTURED.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string lines = "| keywords | what happens |\n|---|---|\n";
  for (const Line& line : kTable) lines += fmt::format("| {} | {} |\n", line.keywords, line.what);
  EXPECT_NE(text.find(lines + "\n"), std::string::npos) << "it should be\n" << lines;
}

}  // namespace
}  // namespace skein::grammar
