#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/test_folder.h"
#include "server/batch/batch_validator.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

class BatchInputTest : public ::testing::Test {
 protected:
  BatchInput read(const std::string& text) {
    const auto file = reader_of(OwnedFd(::open(folder_.write("input", text).c_str(), O_RDONLY)));
    auto input = read_batch_input(*file, "/v1/chat/completions");
    SKEIN_CHECK(input.ok(), "{}", input.message());
    return std::move(*input);
  }
  // The one error that fails the batch, as "code@line".
  std::string failure(const std::string& text) {
    const BatchInput input = read(text);
    EXPECT_TRUE(input.errors.empty() || input.lines.empty());
    std::string all;
    for (const BatchError& error : input.errors) {
      all += (all.empty() ? "" : " ") + error.code + "@" + std::to_string(error.line);
    }
    return all;
  }

  testing::TestFolder folder_;
};

std::string line(const std::string& custom_id, const std::string& method = "POST",
                 const std::string& url = "/v1/chat/completions") {
  return fmt::format(R"({{"custom_id": "{}", "method": "{}", "url": "{}", "body": {{}}}})",
                     custom_id, method, url) +
         "\n";
}

std::string code_of(const InputLine& line) {
  if (line.refusal.status_code == 0) return "";
  EXPECT_EQ(line.refusal.status_code, 400);
  return nlohmann::json::parse(line.refusal.body)["error"]["code"];
}

nlohmann::json parsed(const std::string& text, const InputLine& line) {
  return nlohmann::json::parse(text.substr(line.offset, line.bytes), nullptr, false);
}

TEST_F(BatchInputTest, GoodLinesAreFoundAgainByTheirOffsets) {
  const std::string text = fmt::format("\n{}  \r\n{}\n\n{}", line("a"), line("\\u00e9"), line("c"));
  for (const std::string& ending : {text, text.substr(0, text.size() - 1)}) {
    const BatchInput input = read(ending);
    ASSERT_EQ(input.lines.size(), 3U);
    EXPECT_EQ(input.lines[0].line, 2);
    EXPECT_EQ(input.lines[1].line, 4);
    EXPECT_EQ(input.lines[1].custom_id, "é");
    EXPECT_EQ(input.lines[2].line, 7);
    for (const InputLine& one : input.lines) {
      EXPECT_EQ(code_of(one), "");
      EXPECT_EQ(parsed(ending, one)["body"], nlohmann::json::object());
    }
  }
}

TEST_F(BatchInputTest, LinesLongerThanAPieceKeepTheirOffsets) {
  const std::string body(3'000'000, 'x');
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += fmt::format(R"({{"custom_id": "{}", "method": "POST", "url": "/v1/chat/completions", )"
                        R"("body": {{"t": "{}"}}}})",
                        i, body) +
            "\n";
  }
  const BatchInput input = read(text);
  ASSERT_EQ(input.lines.size(), 3U);
  EXPECT_EQ(parsed(text, input.lines[2])["body"]["t"], body);
}

TEST_F(BatchInputTest, WhatMakesTheFileUselessFailsTheBatchAndNamesTheLine) {
  EXPECT_EQ(failure(""), "empty_file@0");
  EXPECT_EQ(failure("\n \n\n"), "empty_file@0");
  EXPECT_EQ(failure("hello\nworld\n"), "invalid_json_line@1 invalid_json_line@2");
  EXPECT_EQ(failure(R"([{"custom_id": "a"}])"), "invalid_json_line@1");
  EXPECT_EQ(failure(line("a") + line("b") + line("a")), "duplicate_custom_id@3");
  EXPECT_EQ(failure(line("a") + line("b", "GET")), "invalid_method@2");
  EXPECT_EQ(failure(line("a") + line("b", "POST", "/v1/completions")), "mismatched_url@2");
  EXPECT_EQ(failure(line("a") + line("b", "POST", "")), "mismatched_url@2");
}

TEST_F(BatchInputTest, FiftyThousandLinesAndNotOneMore) {
  std::string text;
  for (size_t i = 0; i < kMaxBatchLines; ++i) text += line(std::to_string(i));
  EXPECT_EQ(read(text).lines.size(), kMaxBatchLines);
  EXPECT_EQ(failure(text + line("x") + line("y")), "too_many_lines@50001");
}

TEST_F(BatchInputTest, NoMoreThanAHundredErrorsAreListed) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "no\n";
  EXPECT_EQ(read(text).errors.size(), 100U);
}

TEST_F(BatchInputTest, ABrokenLineIsItsOwnErrorWhenOthersCanRun) {
  const std::string deep = R"({"custom_id": "d", "body": )" + std::string(1'000'000, '[');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"custom_id\": \"a\",\n", "invalid_json_line"},
      {"\xff\xfe\n", "invalid_json_line"},
      {deep + "\n", "invalid_json_line"},
      {"{\"custom_id\": 7}\n", "invalid_custom_id"},
      {R"({"custom_id": ")" + std::string(513, 'a') + "\"}\n", "invalid_custom_id"},
      {R"({"custom_id": "n", "method": "POST", "url": "/v1/chat/completions"})"
       "\n",
       "invalid_body"},
      {R"({"custom_id": "n", "method": "POST", "url": "/v1/chat/completions", "body": []})"
       "\n",
       "invalid_body"},
      {std::string(kMaxLineBytes + 1, ' ') + "\n", "line_too_long"},
  };
  for (const auto& [bad, code] : cases) {
    const std::string text = line("first") + bad + line("last");
    const BatchInput input = read(text);
    ASSERT_EQ(input.lines.size(), 3U) << code;
    EXPECT_EQ(code_of(input.lines[0]), "");
    EXPECT_EQ(code_of(input.lines[1]), code);
    EXPECT_EQ(code_of(input.lines[2]), "");
    EXPECT_EQ(parsed(text, input.lines[2])["custom_id"], "last");
  }
}

}  // namespace
}  // namespace skein
