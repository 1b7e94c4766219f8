#include "engine/loading/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/loading/load_text.h"
#include "engine/models.h"
#include "engine/tiny_model.h"
#include "format/gguf_writer.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TestFolder;

TEST(LoadedModel, IsEverythingThatAPathStandsFor) {
  const TestFolder folder;
  ComputePool pool(1);
  const auto model = LoadedModel::load(testing::write_tiny_model(folder), {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ((*model)->decoder().spec().family, "llama");
  EXPECT_EQ((*model)->decoder().max_context(), testing::kTinyContext);
  EXPECT_EQ((*model)->decoder().spec().vocab, testing::kTinyVocab);
  EXPECT_EQ((*model)->vocab(), testing::kTinyTokens) << "padding cannot be drawn";
  ASSERT_NE((*model)->tokenizer(), nullptr);
  ASSERT_NE((*model)->chat_template(), nullptr);
  EXPECT_THAT((*model)->sampling_defaults().stop_ids, ElementsAre(testing::kTinyEnd));
}

TEST(LoadedModel, NeedsNoTokenizer) {
  const TestFolder folder;
  ComputePool pool(1);
  const auto model = LoadedModel::load(testing::write_tiny_model(folder, "ids", false), {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ((*model)->tokenizer(), nullptr);
  EXPECT_EQ((*model)->tokenizer_status().code(), Code::kNotFound);
  EXPECT_EQ((*model)->vocab(), testing::kTinyVocab);
  EXPECT_TRUE((*model)->sampling_defaults().stop_ids.empty());
}

TEST(LoadedModel, FailuresNameThePath) {
  const TestFolder folder;
  ComputePool pool(1);
  const std::string path = testing::write_tiny_model(folder);
  const auto status_of = [&](const ModelOptions& options) {
    return LoadedModel::load(path, options, pool).status();
  };
  EXPECT_EQ(LoadedModel::load(folder / "none", {}, pool).status().code(), Code::kNotFound);
  ModelOptions options;
  options.isa = "nonsense";
  EXPECT_THAT(status_of(options).message(), HasSubstr("nonsense"));
  options = {};
  options.max_context = 10'000;
  EXPECT_EQ(status_of(options).code(), Code::kOutOfRange);
  EXPECT_THAT(status_of(options).message(), HasSubstr(path));
}

TEST(LoadedModel, BrokenTextLeavesAModelOfIds) {
  const TestFolder folder;
  ComputePool pool(1);
  const std::string path = testing::write_tiny_model(folder);
  folder.write("tiny/tokenizer.json", "{");
  folder.write("tiny/chat_template.jinja", "{% if %}");
  const auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ((*model)->tokenizer(), nullptr);
  EXPECT_THAT((*model)->tokenizer_status().message(), HasSubstr(path));
  EXPECT_EQ((*model)->chat_template(), nullptr);
  EXPECT_THAT((*model)->chat_template_status().message(), HasSubstr(path));
}

// The recommendations of a folder whose generation_config.json holds `json`.
SamplingParams folder_defaults(std::string_view json, std::vector<std::string>& ignored) {
  const TestFolder folder;
  testing::write_tiny_model(folder);
  folder.write("tiny/generation_config.json", json);
  const auto source = open_model(folder / "tiny");
  EXPECT_TRUE(source.ok()) << source.message();
  return read_sampling_defaults(*source, ignored);
}

TEST(SamplingDefaults, ComeFromGenerationConfig) {
  std::vector<std::string> ignored;
  const SamplingParams params = folder_defaults(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "typical_p": 0.9,
          "repetition_penalty": 1.05, "do_sample": true})",
      ignored);
  EXPECT_FLOAT_EQ(params.temperature, 0.6F);
  EXPECT_EQ(params.top_k, 20u);
  EXPECT_FLOAT_EQ(params.top_p, 0.95F);
  EXPECT_FLOAT_EQ(params.min_p, 0.1F);
  EXPECT_FLOAT_EQ(params.typical_p, 0.9F);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.05F);
  EXPECT_TRUE(ignored.empty());
}

TEST(SamplingDefaults, WhatMakesNoSenseIsLeftOutAndNamed) {
  std::vector<std::string> ignored;
  const SamplingParams params = folder_defaults(
      R"({"temperature": -1, "top_k": -1, "top_p": "high", "min_p": null,
          "repetition_penalty": 1.5})",
      ignored);
  EXPECT_EQ(params.temperature, 1);
  EXPECT_EQ(params.top_k, 0u) << "-1 is how some say off";
  EXPECT_EQ(params.top_p, 1);
  EXPECT_EQ(params.repetition_penalty, 1.5F);
  EXPECT_THAT(ignored,
              ElementsAre("temperature is -1, it must be from 0 to 100", "top_p is no number"));
}

TEST(SamplingDefaults, ComeFromGgufKeys) {
  const TestFolder folder;
  const auto bytes = GgufWriter()
                         .string("general.architecture", "llama")
                         .scalar("general.sampling.temp", GgufWriter::Type::kFloat32, 0.25F)
                         .scalar("general.sampling.top_k", GgufWriter::Type::kInt32, int32_t{40})
                         .scalar("general.sampling.top_p", GgufWriter::Type::kFloat32, 0.5F)
                         .build();
  const auto source = open_model(folder.write("m.gguf", bytes));
  ASSERT_TRUE(source.ok()) << source.message();
  std::vector<std::string> ignored;
  const SamplingParams params = read_sampling_defaults(*source, ignored);
  EXPECT_EQ(params.temperature, 0.25F);
  EXPECT_EQ(params.top_k, 40u);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_TRUE(ignored.empty());
}

}  // namespace
}  // namespace skein
