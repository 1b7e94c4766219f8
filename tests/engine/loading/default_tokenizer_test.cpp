// The default model's tokenizer: against Hugging Face's implementation, its stops, its control
// tokens.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/models.h"
#include "text/oracle.h"

namespace skein {
namespace {

using testing::default_model_path;
using testing::load;

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
