// A tokenizer of a GGUF file written as tokenizer.json: Hugging Face's implementation, and skein's
// own reader, make the same ids of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/loading/load_text.h"
#include "engine/models.h"
#include "text/oracle.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_json_writer.h"

namespace skein {
namespace {

// Writes `spec`, and has what comes of `count` texts compared.
void expect_the_same(const TokenizerSpec& spec, int count) {
  const auto json = write_tokenizer_json(spec);
  ASSERT_TRUE(json.ok()) << json.message();
  const auto original = Tokenizer::create(spec);
  ASSERT_TRUE(original.ok()) << original.message();
  auto parsed = parse_tokenizer_json(*json);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  const auto again = Tokenizer::create(std::move(*parsed));
  ASSERT_TRUE(again.ok()) << again.message();

  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  const std::string file = folder.write("tokenizer.json", *json);
  ASSERT_EQ(testing::run_oracle("exported '" + file + "' '" + (folder / "out") + "' " +
                                std::to_string(count)),
            0);
  const auto lines = testing::read_lines(folder / "out");
  ASSERT_EQ(lines.size(), static_cast<size_t>(count));
  size_t wrong = 0;
  for (const auto& line : lines) {
    const auto text = line[0].get<std::string>();
    const auto plain = original->encode(text);
    const EncodeOptions special{.parse_special = true, .add_special = true};
    const bool same = nlohmann::json(*original->encode(text, special)) == line[3] &&
                      nlohmann::json(*again->encode(text, special)) == line[3] &&
                      (line[1].is_null() || nlohmann::json(*plain) == line[1]);
    if (!same && ++wrong <= 5) ADD_FAILURE() << line << "\n" << nlohmann::json(*plain);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(ExportTokenizer, DefaultModel) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto source = open_model(testing::default_model_path());
  ASSERT_TRUE(source.ok());
  const auto spec = read_tokenizer_spec(*source);
  ASSERT_TRUE(spec.ok()) << spec.message();
  expect_the_same(*spec, 3000);
}

// Llama-2's kind: scores, byte pieces, a space before the text, a token before that.
TokenizerSpec sentence_pieces() {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kSpmBpe;
  spec.decoder = TokenizerSpec::Decoder::kMetaspace;
  spec.byte_fallback = spec.strip_leading_space = true;
  const auto add = [&spec](std::string_view piece, TokenType type, double score) {
    spec.pieces.push_back(piece);
    spec.types.push_back(type);
    spec.scores.push_back(score);
  };
  for (const char* piece : {"<unk>", "<s>", "</s>"}) {
    spec.added.push_back(
        {.id = static_cast<TokenId>(spec.pieces.size()), .text = piece, .special = true});
    add(piece, spec.pieces.empty() ? TokenType::kUnknown : TokenType::kControl, 0);
  }
  for (int byte = 0; byte < 256; ++byte) {
    add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
  }
  double score = 0;
  for (const char* piece :
       {"\u2581t",  "he",    "in",          "\u2581the", "er",           "on", "\u2581a",
        "\u2581of", "ll",    "llo",         "hello",     "\u2581\u2581", "or", "ld",
        "orld",     "World", "\u2581World", "ter",       "12",           "..", "..."}) {
    add(piece, TokenType::kNormal, score -= 1);
  }
  for (const char* piece : {"\u2581", "t", "h", "e", "i", "n", "r", "o", "a", "f", "l", "d", "W",
                            "1", "2", ".", "s", "'"}) {
    add(piece, TokenType::kNormal, score -= 1);
  }
  spec.unknown = 0;
  spec.normalizer.push_back({NormalizerStep::Kind::kPrepend, {}, " "});
  spec.normalizer.push_back({NormalizerStep::Kind::kReplace, " ", std::string(kMetaspace)});
  spec.prefix = {1};
  return spec;
}

TEST(ExportTokenizer, SentencePieces) {
  expect_the_same(sentence_pieces(), 2000);
}

TEST(ExportTokenizer, OthersAreRefused) {
  TokenizerSpec spec = sentence_pieces();
  spec.model = TokenizerSpec::Model::kUnigram;
  const auto json = write_tokenizer_json(spec);
  EXPECT_EQ(json.status().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace skein
