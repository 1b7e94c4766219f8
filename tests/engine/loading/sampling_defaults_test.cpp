#include "engine/loading/sampling_defaults.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/needs.h"
#include "engine/tiny_model.h"
#include "format/gguf_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TestFolder;

// Of a folder whose generation_config.json holds `json`.
SamplingDefaults folder_defaults(std::string_view json, const SamplingWishes& wishes = {}) {
  const TestFolder folder;
  testing::write_tiny_model(folder);
  folder.write("tiny/generation_config.json", json);
  const auto source = open_model(folder / "tiny");
  EXPECT_TRUE(source.ok()) << source.message();
  return find_sampling_defaults(*source, wishes);
}

SamplingDefaults gguf_defaults(GgufWriter writer) {
  const TestFolder folder;
  const auto source = open_model(folder.write("m.gguf", writer.build()));
  EXPECT_TRUE(source.ok()) << source.message();
  return find_sampling_defaults(*source, {});
}

// Temperature, top_p and min_p, and who said so.
std::vector<std::string> facts(const SamplingDefaults& defaults) {
  const SamplingParams& params = defaults.params;
  return {fmt::format("{} {} {}", params.temperature, params.top_p, params.min_p),
          std::string(name_of(defaults.source))};
}

TEST(SamplingDefaults, ComeFromGenerationConfig) {
  const SamplingDefaults defaults = folder_defaults(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "typical_p": 0.9,
          "repetition_penalty": 1.05, "do_sample": true})");
  EXPECT_THAT(facts(defaults), ElementsAre("0.6 0.95 0.1", "files"));
  EXPECT_EQ(defaults.params.top_k, 20u);
  EXPECT_FLOAT_EQ(defaults.params.typical_p, 0.9F);
  EXPECT_FLOAT_EQ(defaults.params.repetition_penalty, 1.05F);
  EXPECT_TRUE(defaults.ignored.empty());
}

TEST(SamplingDefaults, WhatTheFilesLeaveOutIsOffOnceTheySayAnythingOfDrawing) {
  EXPECT_THAT(facts(folder_defaults(R"({"temperature": 0.6})")), ElementsAre("0.6 1 0", "files"));
  EXPECT_THAT(facts(folder_defaults(R"({"top_k": 50})")), ElementsAre("1 1 0", "files"));
}

TEST(SamplingDefaults, WhatMakesNoSenseIsLeftOutAndNamed) {
  const SamplingDefaults defaults = folder_defaults(
      R"({"temperature": -1, "top_k": -1, "top_p": "high", "min_p": null,
          "repetition_penalty": 1.5})");
  EXPECT_THAT(facts(defaults), ElementsAre("1 1 0", "files"));
  EXPECT_EQ(defaults.params.top_k, 0u) << "-1 is how some say off";
  EXPECT_EQ(defaults.params.repetition_penalty, 1.5F);
  EXPECT_THAT(defaults.ignored,
              ElementsAre("temperature is -1, it must be from 0 to 100", "top_p is no number"));
}

TEST(SamplingDefaults, ComeFromGgufKeys) {
  const SamplingDefaults defaults =
      gguf_defaults(GgufWriter()
                        .string("general.architecture", "llama")
                        .scalar("general.sampling.temp", GgufWriter::Type::kFloat32, 0.25F)
                        .scalar("general.sampling.top_k", GgufWriter::Type::kInt32, int32_t{40})
                        .scalar("general.sampling.top_p", GgufWriter::Type::kFloat32, 0.5F));
  EXPECT_THAT(facts(defaults), ElementsAre("0.25 0.5 0", "files"));
  EXPECT_EQ(defaults.params.top_k, 40u);
  EXPECT_TRUE(defaults.ignored.empty());
}

TEST(SamplingDefaults, AreGeneralWhereNothingIsKnown) {
  EXPECT_THAT(facts(folder_defaults("{}")), ElementsAre("0.7 0.95 0.05", "general"));
  EXPECT_THAT(facts(folder_defaults(R"({"temperature": -1})")),
              ElementsAre("0.7 0.95 0.05", "general"));
  // A penalty says nothing of how tokens are drawn, and counts all the same.
  const SamplingDefaults penalty = folder_defaults(R"({"repetition_penalty": 1.2})");
  EXPECT_THAT(facts(penalty), ElementsAre("0.7 0.95 0.05", "general"));
  EXPECT_EQ(penalty.params.repetition_penalty, 1.2F);
}

TEST(SamplingDefaults, AreTheAuthorsForAModelThatIsKnown) {
  const auto model = [](const char* organization, const char* chat_template) {
    GgufWriter writer;
    writer.string("general.architecture", "llama")
        .string("general.organization", organization)
        .string("general.basename", "smollm2");
    if (chat_template != nullptr) writer.string("tokenizer.chat_template", chat_template);
    return writer;
  };
  EXPECT_THAT(facts(gguf_defaults(model("HuggingFaceTB", "x"))),
              ElementsAre("0.2 0.9 0", "authors"));
  EXPECT_THAT(facts(gguf_defaults(model("Somebody", "x"))),
              ElementsAre("0.7 0.95 0.05", "general"));
  EXPECT_THAT(facts(gguf_defaults(model("HuggingFaceTB", nullptr))),
              ElementsAre("0.7 0.95 0.05", "general"))
      << "a base model does not talk";
  GgufWriter said = model("HuggingFaceTB", "x");
  said.scalar("general.sampling.temp", GgufWriter::Type::kFloat32, 0.5F);
  EXPECT_THAT(facts(gguf_defaults(said)), ElementsAre("0.5 1 0", "files"));
}

TEST(SamplingDefaults, AreOneAndNothingElseAsAtOpenAi) {
  const SamplingWishes openai{.openai = true, .values = {}};
  EXPECT_THAT(facts(folder_defaults("{}", openai)), ElementsAre("1 1 0", "openai"));
  const SamplingDefaults defaults =
      folder_defaults(R"({"temperature": 0.6, "top_k": 5, "repetition_penalty": 1.2})", openai);
  EXPECT_THAT(facts(defaults), ElementsAre("1 1 0", "openai"));
  EXPECT_EQ(defaults.params.top_k, 0u);
  EXPECT_EQ(defaults.params.repetition_penalty, 1);
}

TEST(SamplingDefaults, AnOperatorsValuesCountBeforeAll) {
  const auto values = parse_sampling_values(" temperature=0.3  top_k=7");
  ASSERT_TRUE(values.ok()) << values.message();
  SamplingWishes wishes{.values = *values};
  const SamplingDefaults defaults =
      folder_defaults(R"({"temperature": 0.6, "top_p": 0.8})", wishes);
  EXPECT_THAT(facts(defaults), ElementsAre("0.3 0.8 0", "operator"));
  EXPECT_EQ(defaults.params.top_k, 7u);
  wishes.openai = true;
  EXPECT_THAT(facts(folder_defaults("{}", wishes)), ElementsAre("0.3 1 0", "operator"));
}

TEST(SamplingDefaults, ValuesThatMakeNoSenseAreRefused) {
  for (const char* text : {"temperature", "temperature=", "temperature=x", "temperature=0.5x",
                           "heat=1", "=1", "temperature=nan", "top_p=0", "min_p=2",
                           "temperature=-1", "temperature=inf", "repetition_penalty=0"}) {
    EXPECT_FALSE(parse_sampling_values(text).ok()) << text;
  }
  EXPECT_THAT(parse_sampling_values("top_p=2").message(), HasSubstr("top_p is 2, it must be"));
  EXPECT_TRUE(parse_sampling_values("").value().empty());
}

TEST(SamplingDefaults, OfTheDefaultModelAreItsAuthors) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto source = open_model(testing::default_model_path());
  ASSERT_TRUE(source.ok()) << source.message();
  EXPECT_THAT(facts(find_sampling_defaults(*source, {})), ElementsAre("0.2 0.9 0", "authors"));
}

}  // namespace
}  // namespace skein
