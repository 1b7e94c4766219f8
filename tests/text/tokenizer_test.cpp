#include "text/tokenizer.h"

#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "fuzz/small_tokenizers.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace skein {
namespace {

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.message();
  std::vector<std::string> out;
  for (const TokenId id : *ids) out.emplace_back(tokenizer.piece(id));
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Utf8, RepairsByMaximalParts) {
  EXPECT_EQ(utf8_repaired("a\xE2\x82z"), "a\uFFFDz");              // one for the two
  EXPECT_EQ(utf8_repaired("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(utf8_repaired("\xC0\x80\xF5"), "\uFFFD\uFFFD\uFFFD");  // overlong, beyond the last
  EXPECT_EQ(utf8_repaired("\xF0\x9F\x98\x80"), "😀");
}

TEST(Bpe, MergesTheBestRankFirstAndTheLeftmostOfEquals) {
  const Tokenizer tokenizer = fuzz::byte_level(Splitter::kGpt2);
  EXPECT_EQ(pieces(tokenizer, "aaa"), (Pieces{"aa", "a"}));
  EXPECT_EQ(pieces(tokenizer, "aaaaaa"), (Pieces{"aaaa", "aa"}));
  EXPECT_EQ(pieces(tokenizer, " the"), (Pieces{"Ġthe"}));
  EXPECT_EQ(pieces(tokenizer, "é"), (Pieces{"Ã©"}));
}

TEST(Bpe, LongWordsMergeLikeShortOnes) {
  const Tokenizer tokenizer = fuzz::byte_level(Splitter::kGpt2);
  // 48 symbols is where the heap takes over.
  for (const size_t length : {46, 47, 48, 49, 50, 101}) {
    Pieces expected(length / 4, "aaaa");
    if (length % 4 >= 2) expected.emplace_back("aa");
    if (length % 2 == 1) expected.emplace_back("a");
    EXPECT_EQ(pieces(tokenizer, std::string(length, 'a')), expected) << length;
  }
}

TEST(Bpe, MergesThatNameNoPieceAreRefused) {
  TokenizerSpec spec;
  fuzz::add(spec, "a");
  spec.merges.push_back("a");
  spec.merges.push_back("b");
  const auto tokenizer = Tokenizer::create(std::move(spec));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.message().find("'a' with 'b'"), std::string::npos) << tokenizer.message();
}

TEST(SpmBpe, FallsBackToBytes) {
  const Tokenizer tokenizer = fuzz::sentencepiece(TokenizerSpec::Model::kSpmBpe);
  EXPECT_EQ(pieces(tokenizer, "the x"), (Pieces{"▁the", "▁", "<0x78>"}));
  EXPECT_EQ(pieces(tokenizer, "\xFF"), (Pieces{"▁", "<0xFF>"}));
}

TEST(SentencePiece, NeitherControlNorByteNorUnknownPiecesComeOutOfText) {
  for (const auto model : {TokenizerSpec::Model::kSpmBpe, TokenizerSpec::Model::kUnigram}) {
    const Tokenizer tokenizer = fuzz::sentencepiece(model);
    for (const std::string text : {"</s>", "<unk>", "<0x41>"}) {
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids.ok());
      EXPECT_GT(ids->size(), 2u) << text;
      std::string joined;
      for (const TokenId id : *ids) joined += tokenizer.bytes(id);
      EXPECT_EQ(joined, " " + text);
    }
    EXPECT_EQ(pieces(tokenizer, "</s>", {.parse_special = true}), (Pieces{"</s>"}));
  }
}

TEST(Unigram, TakesTheBestSum) {
  const Tokenizer tokenizer = fuzz::sentencepiece(TokenizerSpec::Model::kUnigram);
  // "aaaa" is one piece of -5; "a" four times is -6.
  EXPECT_EQ(pieces(tokenizer, "baaaa"), (Pieces{"▁", "b", "aaaa"}));
}

TEST(Tokenizer, AddsWhatTheModelExpects) {
  TokenizerSpec spec;
  spec.prefix.push_back(fuzz::add(spec, "<s>", TokenType::kControl));
  spec.suffix.push_back(fuzz::add(spec, "</s>", TokenType::kControl));
  fuzz::add(spec, "a");
  const Tokenizer tokenizer = fuzz::must_create(std::move(spec));
  EXPECT_EQ(pieces(tokenizer, "a"), (Pieces{"a"}));
  EXPECT_EQ(pieces(tokenizer, "a", {.add_special = true}), (Pieces{"<s>", "a", "</s>"}));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefusedWhenItIsMade) {
  TokenizerSpec spec;
  fuzz::add(spec, "a");
  spec.prefix.push_back(1);
  const auto tokenizer = Tokenizer::create(std::move(spec));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.message().find("token 1, the vocabulary has 1"), std::string::npos)
      << tokenizer.message();
}

TEST(AddedTokens, TheLeftmostAndOfThoseTheLongest) {
  std::vector<AddedToken> tokens(3);
  tokens[0] = {.id = 1, .text = "ab"};
  tokens[1] = {.id = 2, .text = "abc", .rstrip = true};
  tokens[2] = {.id = 3, .text = "bcd", .lstrip = true, .single_word = true};
  const auto added = AddedTokens::create(std::move(tokens));
  ASSERT_TRUE(added.ok());
  const auto next = [&](std::string_view text, size_t from = 0) {
    const AddedTokens::Match match = added->next(text, from, {});
    return std::tuple(match.id, match.begin, match.end);
  };
  EXPECT_EQ(next("xabcd"), std::tuple(2, 1u, 4u));
  EXPECT_EQ(next("abc \n x"), std::tuple(2, 0u, 6u));
  EXPECT_EQ(next("x  bcd."), std::tuple(3, 1u, 6u));
  EXPECT_EQ(next("xbcd"), std::tuple(kNoToken, 4u, 4u));
  EXPECT_EQ(next("bcdx"), std::tuple(kNoToken, 4u, 4u));
  EXPECT_EQ(next("abab", 1), std::tuple(1, 2u, 4u));
}

TEST(AddedTokens, SpecialOnesCountOnlyWhereTheTextIsTrusted) {
  std::vector<AddedToken> tokens(2);
  tokens[0] = {.id = 1, .text = "ab"};
  tokens[1] = {.id = 2, .text = "abc", .special = true};
  const auto added = AddedTokens::create(std::move(tokens));
  ASSERT_TRUE(added.ok());
  TrustedRanges trusted;
  trusted.add(3, 5);
  trusted.add(5, 9);  // one range: 3 to 9
  const auto ids = [&](std::string_view text) {
    std::vector<TokenId> found;
    for (size_t from = 0;;) {
      const AddedTokens::Match match = added->next(text, from, trusted);
      if (match.id == kNoToken) return found;
      found.push_back(match.id);
      from = match.end;
    }
  };
  EXPECT_EQ(ids("abcabcabcabc"), (std::vector<TokenId>{1, 2, 2, 1}));
  EXPECT_EQ(ids("..abc"), (std::vector<TokenId>{1})) << "begins before";
  EXPECT_EQ(ids(".......abc"), (std::vector<TokenId>{1})) << "ends behind";
  EXPECT_FALSE(TrustedRanges().covers(0, 0));
}

TEST(Normalizer, OrdersLongRunsOfMarksInGoodTime) {
  const auto nfc = Normalizer::create({{NormalizerStep::Kind::kNfc, {}, {}}});
  ASSERT_TRUE(nfc.ok());
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0323";  // above, below: in the wrong order
  const auto out = nfc->apply(text);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->substr(0, 5), "ạ\u0323");  // composed with the first mark below
  EXPECT_EQ(out->substr(out->size() - 4), "\u0301\u0301");
}

TEST(Normalizer, WhatGrowsOutOfAllProportionIsAnError) {
  std::vector<NormalizerStep> steps(8, {NormalizerStep::Kind::kReplace, "a", "aaaaaaaaaaaaaaaa"});
  const auto normalizer = Normalizer::create(std::move(steps));
  ASSERT_TRUE(normalizer.ok());
  EXPECT_EQ(normalizer->apply("aaaa").status().code(), Code::kOutOfRange);
  EXPECT_EQ(*normalizer->apply("b"), "b");
}

// The double array by hand: 'A' -> "x", 'A' 'B' -> "yz".
std::string small_charsmap() {
  std::vector<uint32_t> units(1024);
  const auto node = [](uint32_t label, uint32_t offset, bool leaf) {
    return label | (leaf ? 0x100U : 0U) | (offset << 10);
  };
  units[0] = node(0, 0x100, false);
  units[0x141] = node('A', 0x141 ^ 0x200, true);  // children at 0x200 ^ byte
  units[0x200] = 0x80000000U;                     // the value of "A": offset 0
  units[0x242] = node('B', 0x242 ^ 0x300, true);
  units[0x300] = 0x80000002U;  // the value of "AB": offset 2
  const auto bytes = static_cast<uint32_t>(units.size() * 4);
  std::string blob(reinterpret_cast<const char*>(&bytes), 4);
  blob.append(reinterpret_cast<const char*>(units.data()), bytes);
  return blob + std::string("x\0yz\0", 5);
}

TEST(Charsmap, ReplacesTheLongestPrefix) {
  const auto map = Charsmap::parse(small_charsmap());
  ASSERT_TRUE(map.ok()) << map.message();
  EXPECT_EQ(map->apply("AABBé", 100), "xyzBé");
  EXPECT_EQ(map->apply("", 100), "");
}

TEST(Charsmap, RefusesWhatIsCutShort) {
  const std::string blob = small_charsmap();
  EXPECT_FALSE(Charsmap::parse(blob.substr(0, 3)).ok());
  EXPECT_FALSE(Charsmap::parse(blob.substr(0, 100)).ok());
  EXPECT_FALSE(Charsmap::parse(blob.substr(0, blob.size() - 1)).ok());  // no zero at the end
}

TEST(Tokenizer, AnyNumberOfThreadsMayUseOne) {
  const Tokenizer tokenizer = fuzz::byte_level(Splitter::kLlama3);
  const std::string text = "the aaaa é the <think> 123 aaaaaaa the\n\n";
  const auto expected = tokenizer.encode(text);
  ASSERT_TRUE(expected.ok());
  const Tokenizer fresh = fuzz::byte_level(Splitter::kLlama3);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        if (*fresh.encode(text) != *expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace skein
