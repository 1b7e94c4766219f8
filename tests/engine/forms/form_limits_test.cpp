// The limits of forms as requests meet them: at the limit they are served, one beyond they are
// refused with the code and both numbers. What the parsers limit (bytes, depth, properties, unions)
// is held by the tests of grammar/.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/forms/form_helpers.h"
#include "engine/sampling/sampler.h"
#include "engine/scans.h"
#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/json_value.h"

namespace skein::testing {
namespace {

using grammar::FormCode;
using ::testing::HasSubstr;

class FormLimitsTest : public FormTest {
 protected:
  void SetUp() override { ASSERT_TRUE(cache_.prepare().ok()); }
  void expect_taken(const FormSpec& spec) {
    auto form = cache_.compile(spec);
    EXPECT_TRUE(form.ok()) << form.error().message;
  }
  void expect_refused(const FormSpec& spec, uint64_t limit) {
    auto form = cache_.compile(spec);
    ASSERT_FALSE(form.ok());
    EXPECT_EQ(form.error().code, FormCode::kTooComplex) << form.error().message;
    EXPECT_THAT(form.error().message, HasSubstr(std::to_string(limit)));
  }
};

FormSpec choices(size_t count) {
  FormSpec spec{.kind = FormSpec::Kind::kChoice};
  for (size_t i = 0; i < count; ++i) spec.choices.push_back(std::to_string(i));
  return spec;
}

// The schema and its list count, too.
FormSpec nodes(size_t count) {
  std::string text = R"({"examples":[0)";
  for (size_t i = 3; i < count; ++i) text.append(",0");
  return schema_form(text + "]}");
}

TEST_F(FormLimitsTest, Choices) {
  expect_taken(choices(grammar::kMaxChoices));
  expect_refused(choices(grammar::kMaxChoices + 1), grammar::kMaxChoices);
}

TEST_F(FormLimitsTest, SchemaNodes) {
  expect_taken(nodes(grammar::kMaxSchemaNodes));
  expect_refused(nodes(grammar::kMaxSchemaNodes + 1), grammar::kMaxSchemaNodes);
}

TEST_F(FormLimitsTest, BytesOfAGrammar) {
  const auto grammar_of = [](size_t bytes) {
    std::string text = "root ::= \"a\"\n#";
    text.resize(bytes, 'x');
    return FormSpec{.kind = FormSpec::Kind::kGbnf, .text = std::move(text)};
  };
  expect_taken(grammar_of(grammar::kMaxGrammarBytes));
  expect_refused(grammar_of(grammar::kMaxGrammarBytes + 1), grammar::kMaxGrammarBytes);
}

TEST_F(FormLimitsTest, SymbolsOfAGrammar) {
  // A production counts, too: root with `count` of them, and a with one.
  const auto grammar_of = [](size_t symbols) {
    std::string text = "root ::=";
    for (size_t i = 3; i < symbols; ++i) text += " a";
    return FormSpec{.kind = FormSpec::Kind::kGbnf, .text = text + "\na ::= \"x\"\n"};
  };
  expect_taken(grammar_of(grammar::kMaxSymbols));
  expect_refused(grammar_of(grammar::kMaxSymbols + 1), grammar::kMaxSymbols + 1);
}

TEST_F(FormLimitsTest, Repetitions) {
  expect_taken(regex_form("a{1,1000000}"));
  auto refused = cache_.compile(regex_form("a{1,1000001}"));
  EXPECT_FALSE(refused.ok());
}

// Rows of so many items fail: the request does, with what it met, and no other.
TEST_F(FormLimitsTest, WorkOfOneToken) {
  const auto letters = [](int count) {
    std::string text = "root ::= ";
    for (int i = 0; i < count; ++i) text += fmt::format("r{}? ", i);
    for (int i = 0; i < count; ++i) text += fmt::format("\nr{} ::= \"{};\"", i, i);
    return FormSpec{.kind = FormSpec::Kind::kGbnf, .text = text + "\n"};
  };
  SamplingParams params;
  params.stop_ids = {static_cast<TokenId>(kTinyEnd)};
  SamplerScratch scratch(scans().back());
  const std::vector<float> row(kTinyTokens, 0);
  for (const float temperature : {0.0F, 1.0F}) {
    params.temperature = temperature;
    const RequestSampler fits(params, kTinyTokens, {}, form(letters(400)));
    EXPECT_TRUE(fits.sample(row, 0, scratch).ok());
    const RequestSampler heavy(params, kTinyTokens, {}, form(letters(1200)));
    const auto sampled = heavy.sample(row, 0, scratch);
    ASSERT_FALSE(sampled.ok());
    EXPECT_EQ(sampled.status().code(), Code::kOutOfRange);
    EXPECT_THAT(sampled.message(), HasSubstr("units of work"));
  }
}

}  // namespace
}  // namespace skein::testing
