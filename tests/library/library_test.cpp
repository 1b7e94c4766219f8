#include <filesystem>
#include <gtest/gtest.h>
#include <skein/skein.h>
#include <thread>

#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace {

class LibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = skein::testing::default_model_path();
    SKEIN_NEEDS_DEFAULT_MODEL();
    model_.emplace(skein::Model::load(path));
    options_.temperature = 0;
    options_.max_tokens = 24;
  }
  static std::string read(skein::Stream& stream) {
    std::string all;
    for (std::string text; stream.next(text);) all += text;
    return all;
  }

  std::optional<skein::Model> model_;
  skein::GenerateOptions options_;
};

TEST_F(LibraryTest, GuessedTokensChangeNoByte) {
  const std::string wish = "Say this three times: one two three four five.";
  options_.max_tokens = 60;
  skein::Stream plain = model_->chat({{"user", wish}}, options_);
  const std::string expected = read(plain);
  const std::string path = skein::testing::default_model_path();
  for (const char* how : {"off", "ngram", "auto"}) {
    skein::LoadOptions load;
    load.speculation = how;
    load.draft_model = std::string(how) == "auto" ? path : "";  // itself: always right
    skein::Model model = skein::Model::load(path, load);
    skein::Stream stream = model.chat({{"user", wish}}, options_);
    EXPECT_EQ(read(stream), expected) << how;
  }
  skein::LoadOptions wrong;
  wrong.speculation = "on";
  EXPECT_THROW(skein::Model::load(path, wrong), skein::Error);
}

TEST_F(LibraryTest, ThreadsGetTheAnswersTheyGetAlone) {
  skein::Stream alone = model_->chat({{"user", "What is 2+2?"}}, options_);
  const std::string expected = read(alone);
  EXPECT_NE(expected.find("4"), std::string::npos) << expected;
  EXPECT_GT(alone.summary().generated_tokens, 0U);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      skein::Stream stream = model_->chat({{"user", "What is 2+2?"}}, options_);
      EXPECT_EQ(read(stream), expected);
      EXPECT_EQ(stream.summary().finish_reason, alone.summary().finish_reason);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LibraryTest, StopStringsEndTheTextBeforeThem) {
  skein::Stream whole = model_->complete("The capital of France is", options_);
  const std::string text = read(whole);
  ASSERT_GT(text.size(), 8U);
  options_.stop = {text.substr(5, 2)};
  skein::Stream cut = model_->complete("The capital of France is", options_);
  EXPECT_EQ(read(cut), text.substr(0, text.find(options_.stop[0])));
  EXPECT_EQ(cut.summary().finish_reason, "stop");
}

TEST_F(LibraryTest, CancelEndsAndLettingGoIsFine) {
  options_.max_tokens = 4000;
  skein::Stream stream = model_->complete("One, two, three,", options_);
  std::string text;
  ASSERT_TRUE(stream.next(text));
  stream.cancel();
  while (stream.next(text)) {
  }
  EXPECT_EQ(stream.summary().finish_reason, "cancelled");
  { skein::Stream dropped = model_->complete("Four, five,", options_); }
}

TEST_F(LibraryTest, WrongRequestsThrowWithTheField) {
  options_.temperature = -1;
  EXPECT_THROW((void)model_->complete("x", options_), skein::Error);
  EXPECT_THROW((void)skein::Model::load("/nowhere/model.gguf"), skein::Error);
}

TEST(Library, SamplingThatNobodyAskedForIsAsLoadOptionsSay) {
  const skein::testing::TestFolder folder;
  const std::string path = skein::testing::write_tiny_model(folder);
  const auto answer = [&](const char* defaults, std::optional<float> temperature,
                          std::optional<float> top_p, std::optional<float> min_p) {
    skein::LoadOptions load;
    load.sampling_defaults = defaults;
    skein::Model model = skein::Model::load(path, load);
    skein::GenerateOptions options;
    options.max_tokens = 60;
    options.seed = 3;
    options.temperature = temperature;
    options.top_p = top_p;
    options.min_p = min_p;
    skein::Stream stream = model.complete("x", options);
    std::string all;
    for (std::string text; stream.next(text);) all += text;
    return all;
  };
  EXPECT_EQ(answer("auto", {}, {}, {}), answer("openai", 0.7F, 0.95F, 0.05F));
  EXPECT_EQ(answer("openai", {}, {}, {}), answer("auto", 1, 1, 0));
  EXPECT_NE(answer("openai", {}, {}, {}), answer("auto", {}, {}, {}));
  EXPECT_THROW((void)answer("other", {}, {}, {}), skein::Error);
}

TEST(Library, AnswersKeepToTheirForm) {
  const skein::testing::TestFolder folder;
  skein::Model model = skein::Model::load(skein::testing::write_tiny_model(folder));
  const auto answer = [&](const skein::GenerateOptions& options) {
    skein::Stream stream = model.complete("x", options);
    std::string all;
    for (std::string text; stream.next(text);) all += text;
    EXPECT_EQ(stream.summary().finish_reason, "stop");
    return all;
  };
  skein::GenerateOptions options;
  options.max_tokens = 100;
  options.seed = 3;
  options.regex = "[a-c]{7}";
  const std::string text = answer(options);
  EXPECT_EQ(text.size(), 7U);
  EXPECT_EQ(text.find_first_not_of("abc"), std::string::npos) << text;
  options.choice = {"yes"};
  EXPECT_THROW((void)model.complete("x", options), skein::Error) << "two forms";
  options.regex = "";
  EXPECT_EQ(answer(options), "yes");
  options.choice.clear();
  options.grammar = "root ::= \"<\" [0-9] \">\"";
  EXPECT_EQ(answer(options).size(), 3U);
  options.grammar = "";
  options.json_schema = R"({"const":[1,2]})";
  EXPECT_NE(answer(options).find('2'), std::string::npos);
  options.json_schema = R"({"type":"array","items":{"type":"object"},"contains":{"minimum":5}})";
  try {
    (void)model.complete("x", options);
    ADD_FAILURE() << "what cannot be enforced is refused";
  } catch (const skein::Error& error) {
    EXPECT_NE(std::string(error.what()).find("unsupported_schema at /contains"), std::string::npos)
        << error.what();
  }
}

TEST(Library, NamesWhatOfAToolIsNotEnforced) {
  const skein::testing::TestFolder folder;
  skein::Model model =
      skein::Model::load(skein::testing::write_tiny_model(folder, "tiny", true, 2048));
  skein::GenerateOptions options;
  options.max_tokens = 1;
  options.tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"a": {"type": "array", "contains": {"const": 1}}}}}}])";
  skein::Stream stream = model.chat({{"user", "x"}}, options);
  for (std::string text; stream.next(text);) {
  }
  EXPECT_EQ(stream.summary().relaxed, std::vector<std::string>{"/tools/0/properties/a/contains"});
}

// A model whose chat template cannot be read still completes texts.
TEST(Library, CallsOfTools) {
  const skein::testing::TestFolder folder;
  skein::Model model =
      skein::Model::load(skein::testing::write_tiny_model(folder, "tiny", true, 2048));
  skein::GenerateOptions options;
  options.temperature = 1.2F;
  options.seed = 5;
  options.max_tokens = 200;
  options.tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}}}])";
  options.tool_choice = "f";
  skein::Stream stream = model.chat({{"user", "x"}}, options);
  std::string text;
  EXPECT_FALSE(stream.next(text)) << text;
  ASSERT_EQ(stream.summary().tool_calls.size(), 1U);
  EXPECT_TRUE(stream.summary().relaxed.empty());
  const skein::ToolCall call = stream.summary().tool_calls[0];
  EXPECT_EQ(stream.summary().finish_reason, "tool_calls");
  EXPECT_EQ(call.name, "f");
  EXPECT_NE(call.arguments.find("\"a\""), std::string::npos) << call.arguments;
  // What came of it goes back.
  options.tool_choice = "none";
  options.max_tokens = 3;
  skein::Stream next = model.chat(
      {{"user", "x"}, {"assistant", "", {call}}, {"tool", "done", {}, call.id}}, options);
  while (next.next(text)) {
  }
  EXPECT_EQ(next.summary().generated_tokens, 3U);
  options.tool_choice = "g";
  EXPECT_THROW(model.chat({{"user", "x"}}, options), skein::Error);
  options.tools = "{";
  EXPECT_THROW(model.chat({{"user", "x"}}, options), skein::Error);
}

TEST(Library, ChatsWithABrokenTemplateThrow) {
  namespace fs = std::filesystem;
  const skein::testing::TestFolder folder;
  const std::string golden = SKEIN_SOURCE_DIR "/build/goldens/llama/";
  fs::create_directories(folder / "m");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(golden + name, (folder / "m/") + name);
  }
  fs::copy_file(SKEIN_SOURCE_DIR "/tests/server/byte_tokenizer.json", folder / "m/tokenizer.json");
  folder.write("m/tokenizer_config.json", R"({"chat_template": "{% for %}"})");
  skein::Model model = skein::Model::load(folder / "m");
  try {
    (void)model.chat({{"user", "x"}}, {});
    ADD_FAILURE() << "a chat without a template";
  } catch (const skein::Error& error) {
    EXPECT_NE(std::string(error.what()).find("the chat template: line 1"), std::string::npos)
        << error.what();
  }
  skein::GenerateOptions options;
  options.max_tokens = 1;
  skein::Stream stream = model.complete("x", options);
  std::string text;
  EXPECT_NO_THROW(while (stream.next(text)){});
}

TEST(EmbeddingTest, ManyTextsAtOnceAndOneAtATimeAreTheSame) {
  const skein::testing::TestFolder folder;
  const std::string path = skein::testing::write_tiny_model(folder);
  skein::LoadOptions options;
  options.pooling = "mean";
  skein::Model model = skein::Model::load(path, options);
  std::vector<std::string> texts;
  for (int i = 0; i < 1500; ++i)
    texts.push_back("text " + std::to_string(i % 11));  // more than wait
  const std::vector<std::vector<float>> all = model.embed(texts);
  ASSERT_EQ(all.size(), texts.size());
  double squares = 0;
  for (const float x : all[0]) squares += double{x} * double{x};
  EXPECT_NEAR(squares, 1, 1e-6);
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(model.embed({texts[i]}).front(), all[i]);
    EXPECT_EQ(all[i + 11], all[i]);
  }
  EXPECT_EQ(model.embed({"x"}, 8).front().size(), 8U);
  EXPECT_THROW(model.embed({"x"}, 65), skein::Error);
  EXPECT_TRUE(model.embed({}).empty());
  skein::Model silent = skein::Model::load(path);
  EXPECT_THROW(silent.embed({"x"}), skein::Error);
  options.pooling = "first";
  EXPECT_THROW(skein::Model::load(path, options), skein::Error);
}

}  // namespace
