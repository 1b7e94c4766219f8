// tokenizer.json files that Hugging Face tokenizers trained and saved, against itself.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/test_folder.h"
#include "text/oracle.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace skein {
namespace {

constexpr int kTexts = 5000;

void compare(const Tokenizer& tokenizer, const std::string& name,
             const std::vector<nlohmann::json>& lines) {
  size_t wrong = 0;
  const auto check = [&](const nlohmann::json& got, const nlohmann::json& want, const auto& line) {
    if (got == want || ++wrong > 5) return;
    ADD_FAILURE() << name << ": " << line[0].dump(-1, ' ', true) << "\n  " << got << "\n  " << want;
  };
  for (const auto& line : lines) {
    const auto text = line[0].get<std::string>();
    const auto plain = tokenizer.encode(text);
    const auto special = tokenizer.encode(text, {.parse_special = true, .add_special = true});
    ASSERT_TRUE(plain.ok() && special.ok());
    check(*special, line[3], line);
    for (const TokenId id : *plain) {
      const bool unknown = tokenizer.piece(id) == "<unk>" || tokenizer.piece(id) == "[UNK]";
      ASSERT_TRUE(unknown || !tokenizer.is_control(id)) << name << ": " << text << " gives " << id;
    }
    if (line[1].is_null()) continue;
    check(*plain, line[1], line);
    const auto decoded = tokenizer.decode(*plain, {.skip_special = false});
    ASSERT_TRUE(decoded.ok()) << decoded.message();
    // Without a decoder Hugging Face puts spaces between pieces, which no model wants.
    if (name != "words") check(*decoded, line[2], line);
  }
  EXPECT_EQ(wrong, 0u) << name;
}

TEST(TrainedTokenizers, GiveTheSameIdsAndText) {
  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  ASSERT_EQ(testing::run_oracle("trained '" + folder.path() + "' " + std::to_string(kTexts)), 0);
  for (const std::string name :
       {"llama3", "falcon", "neox", "added", "spm_bpe", "unigram", "words", "bert", "bert_cased"}) {
    auto spec = parse_tokenizer_json(testing::read_file(folder / (name + ".json")));
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.message();
    const auto tokenizer = Tokenizer::create(std::move(*spec));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.message();
    const auto lines = testing::read_lines(folder / (name + ".ids"));
    ASSERT_EQ(lines.size(), size_t{kTexts});
    compare(*tokenizer, name, lines);
  }
}

}  // namespace
}  // namespace skein
