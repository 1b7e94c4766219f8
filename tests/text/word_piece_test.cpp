// BERT's tokenizer: its classes of characters, its words, its pieces.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/test_folder.h"
#include "text/bert_text.h"
#include "text/normalizer.h"
#include "text/oracle.h"
#include "text/splitter.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace skein {
namespace {

using Ids = std::vector<TokenId>;

nlohmann::json bert_file() {
  return nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": true},
                     {"id": 1, "content": "[UNK]", "special": true},
                     {"id": 2, "content": "[CLS]", "special": true},
                     {"id": 3, "content": "[SEP]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}},
                 {"SpecialToken": {"id": "[SEP]"}}],
      "special_tokens": {"[CLS]": {"ids": [2]}, "[SEP]": {"ids": [3]}}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 10,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "un": 4, "##aff": 5,
                        "##able": 6, "##a": 7, "a": 8, ",": 9, "中": 10, "ab": 11, "##b": 12,
                        "cafe": 13, ".": 14}}})");
}

Tokenizer make(const nlohmann::json& file) {
  auto spec = parse_tokenizer_json(file.dump());
  EXPECT_TRUE(spec.ok()) << spec.message();
  auto tokenizer = Tokenizer::create(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  return std::move(*tokenizer);
}

TEST(WordPiece, TakesTheLongestPieceFromTheStartOn) {
  const Tokenizer tokenizer = make(bert_file());
  EXPECT_EQ(*tokenizer.encode("unaffable"), (Ids{4, 5, 6}));
  EXPECT_EQ(*tokenizer.encode("ab aab"), (Ids{11, 8, 7, 12}));
  // No way back: "ab" is longer than "a", and then there is no piece for "le".
  EXPECT_EQ(*tokenizer.encode("able"), (Ids{1}));
  EXPECT_EQ(*tokenizer.encode("Un,AFF\tun.a"), (Ids{4, 9, 1, 4, 14, 8}));
  EXPECT_EQ(*tokenizer.encode("", {.add_special = true}), (Ids{2, 3}));
  EXPECT_EQ(*tokenizer.encode(" \n "), Ids{});
}

TEST(WordPiece, AWordOfTooManyCharactersIsUnknown) {
  const Tokenizer tokenizer = make(bert_file());
  EXPECT_EQ(*tokenizer.encode(std::string(10, 'a')), (Ids{8, 7, 7, 7, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(*tokenizer.encode(std::string(11, 'a')), (Ids{1}));
  EXPECT_EQ(*tokenizer.encode(std::string(1 << 20, 'a')), (Ids{1}));
  // So a text of many bytes may be few tokens: who counts bytes first must not refuse it.
  EXPECT_GE(tokenizer.longest_piece_bytes(), size_t{1} << 20);
}

TEST(WordPiece, CleansText) {
  const Tokenizer tokenizer = make(bert_file());
  EXPECT_EQ(*tokenizer.encode("CAF\u00C9"), (Ids{13}));
  EXPECT_EQ(*tokenizer.encode("ca\u0301fe\u200B"), (Ids{13}));
  EXPECT_EQ(*tokenizer.encode("a中a\u00A0a"), (Ids{8, 10, 8, 8}));
  EXPECT_EQ(*tokenizer.encode(std::string_view("a\0\xEF\xBF\xBD"
                                               "b",
                                               6)),
            (Ids{11}));
  EXPECT_EQ(*tokenizer.encode("a\xFF"), (Ids{1}));  // not UTF-8
}

TEST(WordPiece, KeepsAccentsAndCaseWhereTheFileDoes) {
  nlohmann::json file = bert_file();
  file["normalizer"]["lowercase"] = false;
  EXPECT_EQ(*make(file).encode("a A caf\u00E9"), (Ids{8, 1, 1}));
  file["normalizer"]["strip_accents"] = true;
  EXPECT_EQ(*make(file).encode("a A caf\u00E9"), (Ids{8, 1, 13}));
}

TEST(WordPiece, ControlTokensNeverComeOutOfText) {
  const Tokenizer tokenizer = make(bert_file());
  EXPECT_EQ(*tokenizer.encode("[CLS] a [SEP] [PAD]"), (Ids{1, 1, 1, 8, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(*tokenizer.encode("a[SEP]", {.parse_special = true}), (Ids{8, 3}));
}

TEST(WordPiece, PutsTwoTextsIntoOne) {
  const Tokenizer tokenizer = make(bert_file());
  const auto pair = tokenizer.encode_pair("a, a", "un [SEP]");
  ASSERT_TRUE(pair.ok()) << pair.message();
  EXPECT_EQ(pair->ids, (Ids{2, 8, 9, 8, 3, 4, 1, 1, 1, 3}));
  EXPECT_EQ(pair->second_from, 5U);
}

TEST(WordPiece, Decodes) {
  const Tokenizer tokenizer = make(bert_file());
  EXPECT_EQ(*tokenizer.decode(Ids{2, 4, 5, 6, 9, 8, 14, 3}), "unaffable, a.");
  EXPECT_EQ(*tokenizer.decode(Ids{2, 8, 3}, {.skip_special = false}), "[CLS] a [SEP]");
}

TEST(WordPiece, AFileWithoutAnUnknownTokenIsRefused) {
  nlohmann::json file = bert_file();
  file["model"]["unk_token"] = "[none]";
  auto spec = parse_tokenizer_json(file.dump());
  ASSERT_TRUE(spec.ok()) << spec.message();
  const auto tokenizer = Tokenizer::create(std::move(*spec));
  EXPECT_EQ(tokenizer.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(tokenizer.message(), "tokenizer: word pieces have no unknown token");
}

std::vector<std::string> words_of(std::string_view text, bool lowercase) {
  TokenizerSpec spec;
  bert::add_normalizer({.accents = lowercase, .lowercase = lowercase}, spec);
  const auto normalizer = Normalizer::create(spec.normalizer);
  const std::string normal = normalizer->apply(text).value();
  std::vector<std::string> words;
  split(Splitter::kSpace, normal, [&](std::string_view stretch, bool is_space) {
    if (is_space || stretch.empty()) return;
    split(Splitter::kBertPunctuation, stretch, [&](std::string_view word, bool) {
      if (!word.empty()) words.emplace_back(word);
    });
  });
  return words;
}

TEST(WordPiece, EveryCharacterIsTakenAsTokenizersTakesIt) {
  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  ASSERT_EQ(testing::run_oracle("characters '" + (folder / "out") + "'"), 0);
  const auto lines = testing::read_lines(folder / "out");
  ASSERT_EQ(lines.size(), (5 * 0x10000U - 0x800U) / 64 + 12 * 2);
  size_t wrong = 0;
  for (const auto& line : lines) {
    for (const bool lowercase : {false, true}) {
      const auto want = line[lowercase ? 2 : 1].get<std::vector<std::string>>();
      const auto got = words_of(line[0].get<std::string>(), lowercase);
      if (got == want || ++wrong > 5) continue;
      ADD_FAILURE() << line[0].dump(-1, ' ', true) << "\n  "
                    << nlohmann::json(got).dump(-1, ' ', true) << "\n  "
                    << nlohmann::json(want).dump(-1, ' ', true);
    }
  }
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace skein
