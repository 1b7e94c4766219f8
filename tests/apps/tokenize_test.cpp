#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "apps/run_skein.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::run_skein;

class Tokenize : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("m/model.safetensors",
                  testing::safetensors_bytes(
                      R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4));
    folder_.write("m/config.json", R"({"model_type": "llama", "eos_token_id": 4})");
    folder_.write("m/tokenizer.json", R"({
      "added_tokens": [{"id": 4, "content": "<s>", "special": true},
                       {"id": 8, "content": "<｜User｜>", "special": false},
                       {"id": 9, "content": "<b>", "special": false}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [4]}}},
      "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "merges": ["a b"],
                "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<": 5, "s": 6, ">": 7}}})");
  }
  testing::Run run(const std::string& arguments) const {
    return run_skein("tokenize --model " + (folder_ / "m") + " " + arguments);
  }

  testing::TestFolder folder_;
};

TEST_F(Tokenize, PrintsOneArrayALine) {
  EXPECT_EQ(run("--text 'ab a<s>'").output, "[2, 3, 0, 5, 6, 7]\n");
  EXPECT_EQ(run("--text 'ab<s>' --parse-special --add-special").output, "[4, 2, 4]\n");
  const std::string lines = folder_.write("lines", "\"ab\"\n\"\"\n\"\\u0061\"\n");
  const auto all = run("--jsonl " + lines);
  EXPECT_EQ(all.output, "[2]\n[]\n[0]\n");
  EXPECT_EQ(all.status, 0);
}

// A marker of the chat's turns is no text that can be typed, whether or not the file calls it
// special.
TEST_F(Tokenize, MarkersNeedToBeAskedFor) {
  EXPECT_EQ(run("--text 'a<b>a<｜User｜>b'").output, "[0, 9, 0, 5, 6, 7, 1]\n");
  EXPECT_EQ(run("--text 'a<｜User｜>b' --parse-special").output, "[0, 8, 1]\n");
}

TEST_F(Tokenize, FailuresAreOneAndWrongUsageIsTwo) {
  const auto bad = run("--jsonl " + folder_.write("lines", "\"ab\"\nab\n"));
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, ::testing::HasSubstr("lines:2: the line is not a JSON string"));
  EXPECT_EQ(run("--jsonl " + (folder_ / "none")).status, 1);
  EXPECT_EQ(run_skein("tokenize --text a --model " + (folder_ / "none")).status, 1);
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("--text a --jsonl b").status, 2);
  EXPECT_EQ(run_skein("tokenize --text a").status, 2);
}

}  // namespace
}  // namespace skein
