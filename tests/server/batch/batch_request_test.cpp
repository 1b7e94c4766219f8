#include "server/batch/batch_request.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

// The codes of a line's problems; those that fail the batch with a '!'.
std::string problems_of(const std::string& text) {
  std::string all;
  for (const LineProblem& problem : parse_batch_line(text, kBatchChatUrl).problems) {
    all += (all.empty() ? "" : " ") + std::string(problem.code) + (problem.fails_batch ? "!" : "");
  }
  return all;
}

TEST(BatchRequests, WhatALineMustHave) {
  EXPECT_EQ(problems_of(""), "invalid_json_line");
  EXPECT_EQ(problems_of("[]"), "invalid_json_line");
  EXPECT_EQ(problems_of("{}"), "invalid_custom_id");
  EXPECT_EQ(problems_of(R"({"custom_id":""})"), "invalid_custom_id");
  EXPECT_EQ(problems_of(R"({"custom_id":"a"})"), "invalid_method! mismatched_url! invalid_body");
  EXPECT_EQ(problems_of(R"({"custom_id":"a","method":"GET","url":"/v1/chat/completions"})"),
            "invalid_method! invalid_body");
  EXPECT_EQ(problems_of(R"({"custom_id":"a","method":"POST","url":"/admin/keys","body":{}})"),
            "mismatched_url!");
  const std::string good = R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions",)";
  EXPECT_EQ(problems_of(good + R"("body":[]})"), "invalid_body");
  EXPECT_EQ(problems_of(good + R"("body":{"x":1}})"), "");
  const ParsedLine line = parse_batch_line(good + R"("body":{"x":1}})", kBatchChatUrl);
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.body["x"], 1);
  // The depth that a request's body may have.
  const std::string deep =
      std::string(json::kMaxDepth - 2, '[') + std::string(json::kMaxDepth - 2, ']');
  EXPECT_EQ(problems_of(good + R"("body":{"x":)" + deep + "}}"), "");
  EXPECT_EQ(problems_of(good + R"("body":{"x":[)" + deep + "]}}"), "invalid_json_line");
}

TEST(BatchRequests, ARefusalIsAnErrorBody) {
  const LineResult result = refusal({"some_code", "Some words."});
  EXPECT_EQ(result.status_code, 400);
  EXPECT_EQ(result.body, R"({"error":{"code":"some_code","message":"Some words.","param":null,)"
                         R"("type":"invalid_request_error"}})");
}

TEST(BatchRequests, WhatMakesABatch) {
  const auto param_of = [](const std::string& body) {
    return parse_batch_request(body).error().param;
  };
  EXPECT_EQ(param_of("{}"), "input_file_id");
  EXPECT_EQ(param_of(R"({"input_file_id":"f"})"), "endpoint");
  EXPECT_EQ(param_of(R"({"input_file_id":"f","endpoint":"/v1/rerank"})"), "endpoint");
  const std::string good = R"({"input_file_id":"f","endpoint":"/v1/completions")";
  EXPECT_EQ(param_of(good + R"(,"completion_window":"1y"})"), "completion_window");
  EXPECT_EQ(param_of(good + R"(,"metadata":{"a":1}})"), "metadata");
  auto batch = parse_batch_request(good + R"(,"metadata":{"a":"b"}})");
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->input_file, "f");
  EXPECT_EQ(batch->endpoint, "/v1/completions");
  EXPECT_EQ(batch->lifetime_s, 86'400);
  EXPECT_EQ(batch->metadata, R"({"a":"b"})");
  EXPECT_EQ(parse_batch_request(good + "}")->metadata, "");
}

}  // namespace
}  // namespace skein
