#include "text/text_assembler.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/rng.h"
#include "fuzz/small_tokenizers.h"
#include "text/utf8.h"

namespace skein {
namespace {

const Tokenizer& byte_level() {
  static const Tokenizer tokenizer = fuzz::byte_level(Splitter::kGpt2);
  return tokenizer;
}

// In byte_level() the id of a byte is the byte.
std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

TextAssembler assembler(std::vector<std::string> stops = {}, DecodeOptions options = {}) {
  auto made = TextAssembler::create(byte_level(), options, std::move(stops));
  EXPECT_TRUE(made.ok()) << made.message();
  return std::move(made).value();
}

// What comes out at each id, and at the end.
std::vector<std::string> chunks(TextAssembler& assembler, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) {
    std::string chunk;
    EXPECT_TRUE(assembler.push(id, chunk).ok());
    out.push_back(chunk);
  }
  std::string rest;
  assembler.finish(rest);
  out.push_back(rest);
  return out;
}

using Chunks = std::vector<std::string>;

TEST(TextAssembler, KeepsCharactersWhole) {
  TextAssembler a = assembler();
  EXPECT_EQ(chunks(a, bytes("aé€")), (Chunks{"a", "", "é", "", "", "€", ""}));
}

TEST(TextAssembler, ReplacesWhatIsInvalidAndDropsWhatIsIncomplete) {
  TextAssembler a = assembler();
  // C3 cannot be followed by 'x'; the E2 82 at the end may yet become a character.
  EXPECT_EQ(chunks(a, bytes("\xC3x\xFF\xE2\x82")), (Chunks{"", "\uFFFDx", "\uFFFD", "", "", ""}));
}

TEST(TextAssembler, HoldsBackWhatMayBeAStop) {
  TextAssembler a = assembler({"ab!"});
  EXPECT_EQ(chunks(a, bytes("xaab?")), (Chunks{"x", "", "a", "", "ab?", ""}));
  EXPECT_FALSE(a.stopped());
  EXPECT_EQ(a.tokens(), 5u);
}

TEST(TextAssembler, GivesBackAtTheEndWhatWasHeld) {
  TextAssembler a = assembler({"stop"});
  EXPECT_EQ(chunks(a, bytes("sto")), (Chunks{"", "", "", "sto"}));
}

TEST(TextAssembler, EndsBeforeTheStopWhateverTheTokenBorders) {
  TextAssembler a = assembler({"END", "\n\n"});
  const TokenId double_a = byte_level().find("aa");
  std::vector<TokenId> ids = {double_a};
  for (const TokenId id : bytes("\nEND more")) ids.push_back(id);
  std::string text;
  for (const TokenId id : ids) ASSERT_TRUE(a.push(id, text).ok());
  a.finish(text);
  EXPECT_EQ(text, "aa\n");
  EXPECT_TRUE(a.stopped());
  EXPECT_EQ(a.stop_index(), 0u);
  EXPECT_EQ(a.tokens(), 5u);  // "aa", "\n", "E", "N", "D"
}

TEST(TextAssembler, OfStopsThatEndTogetherTheLongestCounts) {
  TextAssembler a = assembler({"c", "abc", "bc"});
  EXPECT_EQ(chunks(a, bytes("xabcd")), (Chunks{"x", "", "", "", "", ""}));
  EXPECT_EQ(a.stop_index(), 1u);
}

TEST(TextAssembler, AStopMayBeginInsideATokenAndEndInAnother) {
  TextAssembler a = assembler({"a\n"});
  std::string text;
  ASSERT_TRUE(a.push(byte_level().find("aa"), text).ok());
  EXPECT_EQ(text, "a");
  ASSERT_TRUE(a.push('\n', text).ok());
  EXPECT_EQ(text, "a");
  EXPECT_TRUE(a.stopped());
}

TEST(TextAssembler, ControlTokensAreTextOnlyWhenAskedFor) {
  const std::vector<TokenId> ids = {'a', byte_level().find("<|end|>"),
                                    byte_level().find("<think>")};
  EXPECT_EQ(*byte_level().decode(ids), "a<think>");
  EXPECT_EQ(*byte_level().decode(ids, {.skip_special = false}), "a<|end|><think>");
}

TEST(TextAssembler, TheAddedSpaceGoesButARealOneStays) {
  const Tokenizer spm = fuzz::sentencepiece(TokenizerSpec::Model::kSpmBpe);
  const auto ids = spm.encode("the a");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*spm.decode(*ids), "the a");
  EXPECT_EQ(*spm.decode(*ids, {.continuation = true}), " the a");
}

TEST(TextAssembler, RefusesWhatItCannotDo) {
  const auto status = [](std::vector<std::string> stops) {
    return TextAssembler::create(byte_level(), {}, std::move(stops)).status();
  };
  EXPECT_TRUE(status(std::vector<std::string>(16, "x")).ok());
  EXPECT_EQ(status(std::vector<std::string>(17, "x")).code(), Code::kInvalidArgument);
  EXPECT_EQ(status({""}).code(), Code::kInvalidArgument);
  EXPECT_EQ(status({std::string(1025, 'x')}).code(), Code::kInvalidArgument);
  EXPECT_EQ(status({"\xFF"}).code(), Code::kInvalidArgument);
  TextAssembler a = assembler();
  std::string out;
  for (const TokenId id :
       {-1, static_cast<TokenId>(byte_level().vocab_size()), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(a.push(id, out).code(), Code::kOutOfRange);
  }
  EXPECT_EQ(out, "");
  EXPECT_EQ(a.tokens(), 0u);
}

// Against the plain definition: the whole text, cut where a stop string is complete first.
TEST(TextAssembler, StreamsWhatDecodingAllAtOnceGives) {
  Rng rng(11);
  const std::string alphabet = "aab\xC3\xA9\xE2\x82\xFF ";
  const std::vector<std::string> all_stops = {"ab", "aab", "\xC3\xA9", "b a", "aaa", " "};
  size_t stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<TokenId> ids;
    for (uint64_t n = rng.below(12); n > 0; --n) {
      const bool merged = rng.chance(1, 5);
      ids.push_back(merged ? static_cast<TokenId>(256 + rng.below(9))
                           : static_cast<uint8_t>(alphabet[rng.below(alphabet.size())]));
    }
    std::vector<std::string> stops;
    for (const std::string& stop : all_stops) {
      if (rng.chance(1, 4)) stops.push_back(stop);
    }
    TextAssembler a = assembler(stops);
    std::string streamed;
    for (const TokenId id : ids) ASSERT_TRUE(a.push(id, streamed).ok());
    a.finish(streamed);
    std::string expected = *byte_level().decode(ids);
    size_t best_end = std::string::npos;
    size_t best_begin = 0;
    for (const std::string& stop : stops) {
      const size_t at = expected.find(stop);
      if (at == std::string::npos) continue;
      const size_t end = at + stop.size();
      if (end < best_end || (end == best_end && at < best_begin)) best_end = end, best_begin = at;
    }
    if (best_end != std::string::npos) expected.resize(best_begin);
    ASSERT_EQ(streamed, expected);
    ASSERT_EQ(a.stopped(), best_end != std::string::npos);
    stopped += a.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 1000u);
  EXPECT_LT(stopped, 19000u);
}

}  // namespace
}  // namespace skein
