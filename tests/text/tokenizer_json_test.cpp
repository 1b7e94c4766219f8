// tokenizer.json files that are wrong, or ask for what is not there: each a clean error.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer.h"

namespace skein {
namespace {

using Json = nlohmann::json;

Json sound() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"ids": [4]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": [["a", "b"]]}})");
}

Status status_of(const std::string& text) {
  auto spec = parse_tokenizer_json(text);
  if (!spec.ok()) return spec.status();
  return Tokenizer::create(std::move(*spec)).status();
}

TEST(TokenizerJson, ReadsASoundFile) {
  auto spec = parse_tokenizer_json(sound().dump());
  ASSERT_TRUE(spec.ok()) << spec.message();
  const auto tokenizer = Tokenizer::create(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_EQ(*tokenizer->encode("ab a<s>", {.add_special = true}),
            (std::vector<TokenId>{4, 2, 3, 0}));
  EXPECT_EQ(*tokenizer->encode("ab<s>", {.parse_special = true}), (std::vector<TokenId>{2, 4}));
}

struct Fault {
  const char* name;
  const char* pointer;  // what is replaced
  const char* value;    // by what; empty: it is removed
  const char* message;  // part of the error
};

class TokenizerJsonFault : public ::testing::TestWithParam<Fault> {};

TEST_P(TokenizerJsonFault, IsACleanError) {
  Json file = sound();
  const Json::json_pointer at(GetParam().pointer);
  if (*GetParam().value == '\0') {
    file[at.parent_pointer()].erase(at.back());
  } else {
    file[at] = Json::parse(GetParam().value);
  }
  const Status status = status_of(file.dump());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(
    Faults, TokenizerJsonFault,
    ::testing::Values(
        Fault{"NoModel", "/model", "", "there is no model"},
        Fault{"ModelKind", "/model/type", R"("WordLevel")", "'WordLevel' is not supported"},
        Fault{"NoVocab", "/model/vocab", "{}", "names a piece that is not there"},
        Fault{"IdNegative", "/model/vocab/a", "-1", "has the id -1"},
        Fault{"IdHuge", "/model/vocab/a", "99999999", "has the id 99999999"},
        Fault{"IdSparse", "/model/vocab/a", "1000000", "ids up to 1000000"},
        Fault{"IdText", "/model/vocab/a", R"("0")", "neither an id nor a score"},
        Fault{"IdObject", "/model/vocab/a", R"({"x": 1})", "something that is no entry"},
        Fault{"MergeWithoutSpace", "/model/merges", R"(["ab"])", "a merge has no space"},
        Fault{"MergeOfThree", "/model/merges", R"([["a", "b", "ab"]])", "a merge is not a pair"},
        Fault{"MergeNumber", "/model/merges", "[1]", "no string"},
        Fault{"MergeUnknown", "/model/merges", R"(["a x"])", "'a' with 'x'"},
        Fault{"Prefix", "/model/continuing_subword_prefix", R"("##")", "'##' is not supported"},
        Fault{"AddedNoId", "/added_tokens/0/id", "", "'id' is not there"},
        Fault{"AddedIdHuge", "/added_tokens/0/id", "2097152", "id 2097152"},
        Fault{"AddedFlag", "/added_tokens/0/special", "1", "'special' is a number"},
        Fault{"UnknownRegex", "/pre_tokenizer",
              R"({"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"})",
              "the regex '(a+)+$'"},
        Fault{"SplitBehavior", "/pre_tokenizer",
              R"({"type": "Split", "pattern": {"Regex": "\\s"}, "behavior": "Odd"})", "'Odd'"},
        Fault{"PreTokenizer", "/pre_tokenizer/type", R"("UnicodeScripts")",
              "'UnicodeScripts' is not"},
        Fault{"PreTokenizerNoType", "/pre_tokenizer/type", "", "has no type"},
        Fault{"Normalizer", "/normalizer", R"({"type": "Nmt"})", "'Nmt' is not"},
        Fault{"ReplaceRegex", "/normalizer",
              R"({"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""})",
              "the regex 'a*'"},
        Fault{"Charsmap", "/normalizer",
              R"({"type": "Precompiled", "precompiled_charsmap": "AAAA"})", "3 bytes, the header"},
        Fault{"CharsmapText", "/normalizer",
              R"({"type": "Precompiled", "precompiled_charsmap": "*"})", "not base64"},
        Fault{"Decoder", "/decoder/type", R"("CTC")", "'CTC' is not supported"},
        Fault{"PostProcessor", "/post_processor/type", R"("Odd")", "'Odd' is not supported"},
        Fault{"TemplateId", "/post_processor/special_tokens/<s>/ids", "[5]",
              "the vocabulary has 5"},
        Fault{"TemplateNoIds", "/post_processor/special_tokens", "{}", "'<s>' has no ids"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  EXPECT_EQ(status_of("").code(), Code::kDataLoss);
  EXPECT_EQ(status_of("[1, 2").code(), Code::kDataLoss);
  EXPECT_EQ(status_of("\"\xFF\"").code(), Code::kDataLoss);
  EXPECT_NE(status_of(std::string(100'000, '[')).message().find("nested too deeply"),
            std::string::npos);
}

}  // namespace
}  // namespace skein
