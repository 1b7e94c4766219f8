#include "engine/loading/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/loading/load_text.h"
#include "engine/models.h"
#include "engine/tiny_model.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
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

}  // namespace
}  // namespace skein
