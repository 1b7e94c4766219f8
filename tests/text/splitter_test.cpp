// The splitters against the regexes that they stand for.
#include "text/splitter.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "format/test_folder.h"
#include "text/oracle.h"

namespace skein {
namespace {

std::vector<std::string> pieces(Splitter splitter, std::string_view text) {
  std::vector<std::string> out;
  split(splitter, text, [&out](std::string_view piece, bool) { out.emplace_back(piece); });
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Splitter, Gpt2) {
  EXPECT_EQ(pieces(Splitter::kGpt2, "I'll  say 'Hi'\n 42x"),
            (Pieces{"I", "'ll", " ", " say", " '", "Hi", "'", "\n", " 42", "x"}));
}

TEST(Splitter, Llama3) {
  EXPECT_EQ(pieces(Splitter::kLlama3, "It'S 12345.\n\n  ok  "),
            (Pieces{"It", "'S", " ", "123", "45", ".\n\n", " ", " ok", "  "}));
}

TEST(Splitter, O200kBreaksWhereLowerCaseEnds) {
  EXPECT_EQ(pieces(Splitter::kO200k, "camelCase HTTPServer's"),
            (Pieces{"camel", "Case", " HTTPServer's"}));
}

TEST(Splitter, BytesThatAreNotUtf8AreSymbols) {
  EXPECT_EQ(pieces(Splitter::kGpt2, "a\xFF\xC3 b\xE2\x82"),
            (Pieces{"a", "\xFF\xC3", " b", "\xE2\x82"}));
}

TEST(Splitter, UnknownRegexIsNone) {
  EXPECT_FALSE(splitter_for_regex("[a-z]+").has_value());
  EXPECT_FALSE(splitter_for_regex("").has_value());
}

TEST(Splitter, EqualsTheRegexEngineOnRandomText) {
  SKEIN_NEEDS_PYTHON();
  const testing::TestFolder folder;
  ASSERT_EQ(testing::run_oracle("split '" + (folder / "out") + "' 8000"), 0);
  const auto lines = testing::read_lines(folder / "out");
  ASSERT_EQ(lines.size(), 8001u);
  std::vector<Splitter> splitters;
  for (const auto& regex : lines[0]) {
    const auto splitter = splitter_for_regex(regex.get<std::string>());
    ASSERT_TRUE(splitter.has_value()) << regex;
    splitters.push_back(*splitter);
  }
  size_t wrong = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto text = lines[i][0].get<std::string>();
    for (size_t k = 0; k < splitters.size(); ++k) {
      std::vector<size_t> lengths;
      for (const std::string& piece : pieces(splitters[k], text)) lengths.push_back(piece.size());
      if (lengths == lines[i][k + 1].get<std::vector<size_t>>()) continue;
      if (++wrong <= 5) {
        ADD_FAILURE() << lines[0][k] << " on " << lines[i][0].dump(-1, ' ', true) << ": "
                      << nlohmann::json(lengths) << " instead of " << lines[i][k + 1];
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace skein
