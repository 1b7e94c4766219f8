// Vocabularies that llama.cpp publishes, with texts and their ids.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/models.h"
#include "text/oracle.h"

namespace skein {
namespace {

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

TEST(TokenizerVectors, GgufStopsAreControlTokens) {
  const std::string path = testing::kVectors + "ggml-vocab-phi-3.gguf";
  const LoadedTokenizer loaded = testing::load(path);
  std::vector<std::string> stops;
  for (const TokenId id : loaded.stop_ids) stops.emplace_back(loaded.tokenizer.piece(id));
  EXPECT_EQ(stops, (std::vector<std::string>{"<|endoftext|>", "<|end|>"}));
  EXPECT_EQ(loaded.tokenizer.piece(loaded.bos), "<s>");
  // Phi-3's tokens take the white space behind them.
  EXPECT_EQ(
      *loaded.tokenizer.encode("<|user|>\n<|end|>\n", {.parse_special = true, .add_special = true}),
      (std::vector<TokenId>{1, loaded.tokenizer.find("<|user|>"),
                            loaded.tokenizer.find("<|end|>")}));
}

}  // namespace
}  // namespace skein
