#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "apps/run_skein.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::run_skein_quietly;

class GrammarCheck : public ::testing::Test {
 protected:
  testing::Run run(const std::string& arguments) const {
    return run_skein_quietly("grammar check " + arguments);
  }
  std::string texts(std::string_view lines) const {
    return " --texts " + folder_.write("t", lines);
  }

  testing::TestFolder folder_;
};

TEST_F(GrammarCheck, SaysOfEveryTextWhetherItIsTakenAndEnds) {
  const std::string schema = folder_.write("s", R"({"type":"array","items":{"type":"integer"}})");
  const auto run_result = run("--schema " + schema +
                              texts("{\"text\":\"[1\"}\n{\"text\":\"[1]\"}\n{\"text\":\"[a]\"}\n"));
  EXPECT_EQ(run_result.status, 0);
  EXPECT_EQ(
      run_result.output,
      R"({"relaxed":[],"texts":[{"accepted":true,"ended":false},{"accepted":true,"ended":true},{"accepted":false,"ended":false}]})"
      "\n");
}

TEST_F(GrammarCheck, OtherKindsOfForms) {
  const std::string taken = R"([{"accepted":true,"ended":true}])";
  EXPECT_THAT(run("--regex " + folder_.write("r", "a+b?") + texts("{\"text\":\"aab\"}")).output,
              HasSubstr(taken));
  EXPECT_THAT(
      run("--gbnf " + folder_.write("g", "root ::= \"x\" root?") + texts("{\"text\":\"xx\"}"))
          .output,
      HasSubstr(taken));
  EXPECT_THAT(
      run("--lark " + folder_.write("l", "start: /x/ \"y\"") + texts("{\"text\":\"xy\"}")).output,
      HasSubstr(taken));
}

// As editors and shells end a file, and as people part lines.
TEST_F(GrammarCheck, NewLinesAreNoPartOfAnExpressionOrOfTheTexts) {
  for (const char* end : {"", "\n", "\r\n"}) {
    const auto result = run("--regex " + folder_.write("r", std::string("ab") + end) +
                            texts("\n{\"text\":\"ab\"}\n \n{\"text\":\"a\"}\n\n"));
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output,
                HasSubstr(R"([{"accepted":true,"ended":true},{"accepted":true,"ended":false}])"));
  }
  const auto two = run("--regex " + folder_.write("r", "ab\n\n") + texts("{\"text\":\"ab\\n\"}"));
  EXPECT_THAT(two.output, HasSubstr(R"([{"accepted":true,"ended":true}])")) << "one is meant";
}

TEST_F(GrammarCheck, AVocabularyAndATrace) {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary += std::string("\1", 1) + static_cast<char>(b);
  vocabulary += std::string("\3", 1) + "aab" + std::string(1, '\0');
  const std::string arguments = "--regex " + folder_.write("r", "a+b") + " --vocab " +
                                folder_.write("v", vocabulary) + " --trace";
  const auto cut = run(arguments + texts("{\"text\":\"aaab\"}\n{\"text\":\"\",\"tokens\":[97,256]}"
                                         "\n{\"text\":\"\",\"tokens\":[257]}"));
  EXPECT_EQ(cut.status, 0);
  EXPECT_THAT(cut.output, HasSubstr(R"("accepted":true,"ended":true,"mask_us":[)"));
  EXPECT_THAT(cut.output, HasSubstr(R"({"accepted":false,"ended":false)"));
  EXPECT_THAT(cut.output, HasSubstr("\"compile_us\":"));
  EXPECT_EQ(run(arguments + texts("{\"text\":\"\",\"tokens\":[258]}")).status, 1);
}

TEST_F(GrammarCheck, RefusesWithACodeAndAPointer) {
  const std::string schema = folder_.write("s", R"({"properties":{"a":{"contains":{}}}})");
  const auto relaxed = run("--schema " + schema + texts(""));
  EXPECT_EQ(relaxed.status, 0);
  EXPECT_THAT(relaxed.output, HasSubstr(R"("relaxed":["/properties/a/contains"])"));
  const auto refused = run("--strict --schema " + schema + texts(""));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr(R"({"error":{"code":"unsupported_schema","message":")"));
  EXPECT_THAT(refused.output, HasSubstr(R"("param":"/properties/a/contains"}})"));
  EXPECT_EQ(run("--schema " + schema).status, 2);
  EXPECT_EQ(run("--schema " + schema + " --gbnf " + schema + texts("")).status, 2);
}

}  // namespace
}  // namespace skein
