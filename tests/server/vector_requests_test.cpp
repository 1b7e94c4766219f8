// The bodies of /v1/embeddings and /v1/rerank.
#include "server/api/vector_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::api {
namespace {

using ::testing::HasSubstr;

std::string embedding_param(std::string_view body) {
  auto request = parse_embedding_request(body);
  return request.ok() ? "" : request.error().param;
}
std::string rerank_param(std::string_view body) {
  auto request = parse_rerank_request(body);
  return request.ok() ? "" : request.error().param;
}

TEST(VectorRequests, InputsHaveFourForms) {
  auto text = parse_embedding_request(R"({"input":"ab","model":"m"})");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->model, "m");
  EXPECT_EQ(text->inputs, std::vector<Prompt>{std::string("ab")});
  EXPECT_FALSE(text->base64 || text->dimensions || text->timeout_us);
  auto texts = parse_embedding_request(
      R"({"input":["a","b"],"encoding_format":"base64","dimensions":8,"timeout":2,"user":"u"})");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(texts->inputs.size(), 2U);
  EXPECT_TRUE(texts->base64);
  EXPECT_EQ(texts->dimensions, 8U);
  EXPECT_EQ(texts->timeout_us, 2 * kUsPerSecond);
  auto ids = parse_embedding_request(R"({"input":[1,2]})");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->inputs, std::vector<Prompt>{(std::vector<TokenId>{1, 2})});
  EXPECT_EQ(parse_embedding_request(R"({"input":[[1],[2,3]]})")->inputs.size(), 2U);
}

TEST(VectorRequests, AWrongInputIsNamed) {
  EXPECT_EQ(embedding_param("{}"), "input");
  EXPECT_EQ(embedding_param(R"({"input":[]})"), "input");
  EXPECT_EQ(embedding_param(R"({"input":""})"), "input[0]");
  EXPECT_EQ(embedding_param(R"({"input":["a",""]})"), "input[1]");
  EXPECT_EQ(embedding_param(R"({"input":["a",[1]]})"), "input[1]");
  EXPECT_EQ(embedding_param(R"({"input":[[1],[]]})"), "input[1]");
  EXPECT_EQ(embedding_param(R"({"input":{"a":1}})"), "input");
  EXPECT_EQ(embedding_param(R"({"input":"a","encoding_format":"hex"})"), "encoding_format");
  EXPECT_EQ(embedding_param(R"({"input":"a","dimensions":0})"), "dimensions");
  const auto of = [](size_t count) {
    std::string body = R"({"input":["a")";
    for (size_t i = 1; i < count; ++i) body += ",\"a\"";
    return body + "]}";
  };
  EXPECT_EQ(embedding_param(of(kMaxInputs)), "");
  auto many = parse_embedding_request(of(kMaxInputs + 1));
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().param, "input");
  EXPECT_THAT(many.error().message, HasSubstr("2048"));
}

TEST(VectorRequests, DocumentsAreTextsOrObjects) {
  auto request = parse_rerank_request(
      R"({"query":"q","documents":["a",{"text":"b","id":3}],"top_n":9,"return_documents":true})");
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request->documents, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(request->top_n, 2U);
  EXPECT_TRUE(request->return_documents);
  EXPECT_EQ(parse_rerank_request(R"({"query":"q","documents":["a","b"],"top_n":1})")->top_n, 1U);
  EXPECT_EQ(rerank_param(R"({"documents":["a"]})"), "query");
  EXPECT_EQ(rerank_param(R"({"query":"","documents":["a"]})"), "query");
  EXPECT_EQ(rerank_param(R"({"query":"q"})"), "documents");
  EXPECT_EQ(rerank_param(R"({"query":"q","documents":[]})"), "documents");
  EXPECT_EQ(rerank_param(R"({"query":"q","documents":["a",3]})"), "documents[1]");
  EXPECT_EQ(rerank_param(R"({"query":"q","documents":[{"body":"a"}]})"), "documents[0].text");
  EXPECT_EQ(rerank_param(R"({"query":"q","documents":["a"],"top_n":0})"), "top_n");
}

TEST(VectorRequests, NumbersReadBackAndBase64IsLittleEndian) {
  std::string out;
  const std::vector<float> vector = {1, -0.5F, 1.17549435e-38F, 0.1F};
  append_embedding(out, 3, vector, false);
  EXPECT_EQ(out, R"({"object":"embedding","index":3,"embedding":[1,-0.5,1.1754944e-38,0.1]})");
  out.clear();
  append_embedding(out, 0, std::vector<float>{1, -2}, true);
  EXPECT_EQ(out, R"({"object":"embedding","index":0,"embedding":"AACAPwAAAMA="})");
  EXPECT_GE(embedding_bytes(2, true), out.size());
  const std::vector<float> longest(100, -1.17549435e-38F);
  out.clear();
  append_embedding(out, 2047, longest, false);
  EXPECT_GE(embedding_bytes(100, false), out.size());
}

}  // namespace
}  // namespace skein::api
