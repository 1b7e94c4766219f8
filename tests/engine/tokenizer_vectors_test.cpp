// Tokenizers as they come out of model files: published vectors, the default model's vocabulary
// against Hugging Face's implementation, stop sets.
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/models.h"
#include "text/oracle.h"

namespace skein {
namespace {

using testing::default_model_path;
using testing::kVectors;
using testing::load;

std::vector<std::string> split_at(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(separator, from)) != std::string::npos;
       from = at + separator.size()) {
    parts.push_back(text.substr(from, at - from));
  }
  parts.push_back(text.substr(from));
  return parts;
}

class Vectors : public ::testing::TestWithParam<const char*> {};

TEST_P(Vectors, AreEqual) {
  const std::string path = kVectors + "ggml-vocab-" + GetParam() + ".gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const LoadedTokenizer loaded = load(path);
  const auto texts = split_at(testing::read_file(path + ".inp"), "\n__ggml_vocab_test__\n");
  auto lines = split_at(testing::read_file(path + ".out"), "\n");
  while (lines.size() > texts.size() && lines.back().empty()) lines.pop_back();
  ASSERT_EQ(lines.size(), texts.size());
  ASSERT_GT(texts.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<TokenId> want;
    for (const std::string& word : split_at(lines[i], " ")) {
      if (!word.empty()) want.push_back(std::stoi(word));
    }
    const auto got = loaded.tokenizer.encode(texts[i]);
    ASSERT_TRUE(got.ok()) << got.message();
    EXPECT_EQ(*got, want) << texts[i];
    const auto back = loaded.tokenizer.decode(*got);
    ASSERT_TRUE(back.ok()) << back.message();
    EXPECT_EQ(*back, texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Vectors,
                         ::testing::Values("deepseek-llm", "falcon", "gpt-2", "llama-spm", "mpt",
                                           "phi-3"));

TEST(DefaultModel, EqualsHuggingFaceOnRandomText) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  ASSERT_EQ(
      testing::run_oracle("gguf '" + default_model_path() + "' '" + (folder / "out") + "' 20000"),
      0);
  const auto lines = testing::read_lines(folder / "out");
  ASSERT_EQ(lines.size(), 20000u);
  const Tokenizer tokenizer = load(default_model_path()).tokenizer;
  size_t wrong = 0;
  for (const auto& line : lines) {
    const auto text = line[0].get<std::string>();
    const auto plain = tokenizer.encode(text);
    const auto special = tokenizer.encode(text, {.parse_special = true});
    ASSERT_TRUE(plain.ok() && special.ok());
    const auto decoded = tokenizer.decode(*plain, {.skip_special = false});
    ASSERT_TRUE(decoded.ok());
    // The vocabulary lacks a few bytes, so not every text comes back.
    const bool same = nlohmann::json(*special) == line[3] &&
                      (line[1].is_null() || (*plain == line[1] && *decoded == line[2]));
    if (!same && ++wrong <= 5) ADD_FAILURE() << line << "\n" << nlohmann::json(*plain);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(DefaultModel, NamesItsStops) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const LoadedTokenizer loaded = load(default_model_path());
  const Tokenizer& tokenizer = loaded.tokenizer;
  EXPECT_EQ(tokenizer.piece(loaded.bos), "<|im_start|>");
  EXPECT_EQ(tokenizer.piece(loaded.eos), "<|im_end|>");
  std::vector<std::string> stops;
  for (const TokenId id : loaded.stop_ids) stops.emplace_back(tokenizer.piece(id));
  EXPECT_EQ(stops, (std::vector<std::string>{"<|endoftext|>", "<|im_end|>"}));
  for (const TokenId id : loaded.stop_ids) EXPECT_TRUE(tokenizer.is_control(id));
}

TEST(DefaultModel, UserTextNeverBecomesAControlToken) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const Tokenizer tokenizer = load(default_model_path()).tokenizer;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id) {
    if (!tokenizer.is_control(id)) continue;
    const std::string text(tokenizer.piece(id));
    const auto typed = tokenizer.encode(text);
    ASSERT_TRUE(typed.ok());
    for (const TokenId got : *typed) EXPECT_FALSE(tokenizer.is_control(got)) << text;
    EXPECT_EQ(*tokenizer.encode(text, {.parse_special = true}), (std::vector<TokenId>{id}));
  }
}

}  // namespace
}  // namespace skein
