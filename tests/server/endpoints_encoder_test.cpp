// /v1/embeddings and /v1/rerank of an encoder, and what it does not do.
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>

#include "engine/tiny_encoder.h"
#include "server/live_server.h"

namespace skein {
namespace {

using testing::HttpAnswer;
using testing::Json;
using testing::LiveServer;

std::vector<float> embedding_of(const HttpAnswer& answer, size_t i) {
  EXPECT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.json["data"][i]["index"], i);
  return answer.json["data"][i]["embedding"].get<std::vector<float>>();
}

double squared_length(const std::vector<float>& vector) {
  double sum = 0;
  for (const float value : vector) sum += double{value} * double{value};
  return sum;
}

// In the place of the decoder.
void make_encoder(LiveServer& live, const std::string& pooling, bool ranks = false) {
  std::filesystem::remove_all(live.folder() / "tiny");
  testing::write_tiny_encoder(live.folder(), "tiny", pooling, ranks);
}

TEST(EncoderEndpoints, EmbedTextsAndWriteNone) {
  LiveServer live;
  make_encoder(live, "cls_token");
  live.start();
  const HttpAnswer one = live.post("/v1/embeddings", {{"input", "The cat sat."}});
  const std::vector<float> cat = embedding_of(one, 0);
  EXPECT_EQ(cat.size(), 64U);
  EXPECT_NEAR(squared_length(cat), 1, 1e-6);
  EXPECT_EQ(one.json["usage"]["prompt_tokens"], 6);
  Json texts = Json::array();
  for (int i = 0; i < 40; ++i) texts.push_back(std::string(i, 'x') + " the cat sat on the mat");
  texts[17] = "The cat sat.";
  const HttpAnswer many = live.post("/v1/embeddings", {{"input", texts}});
  EXPECT_EQ(embedding_of(many, 17), cat) << "the same bytes alone and in a batch";
  const Json ids = live.post("/tokenize", {{"content", "the cat sat."}}).json["tokens"];
  EXPECT_EQ(ids.size(), 4U);
  const std::string text(2 * testing::kEncoderContext, 'a');
  HttpAnswer refused = live.post("/v1/embeddings", {{"input", {"a", "the " + text}}});
  EXPECT_EQ(refused.status, 200) << "a word of too many characters is one token";
  std::string words;
  for (uint32_t i = 0; i < testing::kEncoderContext - 1; ++i) words += "a ";
  refused = live.post("/v1/embeddings", {{"input", {"a", words}}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.param(), R"("input[1]")");
  EXPECT_EQ(refused.json["error"]["message"], "input[1] has 97 tokens; the limit is 96.");
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/messages"}) {
    const HttpAnswer text_asked =
        live.post(path, {{"prompt", "a"},
                         {"max_tokens", 3},
                         {"messages", Json::array({{{"role", "user"}, {"content", "a"}}})}});
    EXPECT_EQ(text_asked.status, 501) << path << text_asked.text;
    EXPECT_NE(text_asked.text.find("an encoder"), std::string::npos) << text_asked.text;
    EXPECT_NE(text_asked.text.find("/v1/embeddings"), std::string::npos);
  }
  EXPECT_EQ(live.post("/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}).status, 501);
}

TEST(EncoderEndpoints, RankByTheOnlyLabel) {
  LiveServer live;
  make_encoder(live, "", true);
  live.start();
  const Json documents = {"the dog", "a mat", "the cat sat on the mat", "x"};
  const HttpAnswer all = live.post("/v1/rerank", {{"query", "cats"}, {"documents", documents}});
  ASSERT_EQ(all.status, 200) << all.text;
  ASSERT_EQ(all.json["results"].size(), 4U);
  for (const Json& result : all.json["results"]) {
    const Json document = documents[result["index"].get<size_t>()];
    const HttpAnswer alone =
        live.post("/v1/rerank", {{"query", "cats"}, {"documents", Json::array({document})}});
    EXPECT_EQ(alone.json["results"][0]["relevance_score"], result["relevance_score"]);
    EXPECT_GT(result["relevance_score"], 0);
    EXPECT_LT(result["relevance_score"], 1);
  }
  const HttpAnswer told = live.post(
      "/v1/rerank", {{"query", "cats"}, {"documents", documents}, {"instruction", "be kind"}});
  EXPECT_EQ(told.status, 400);
  EXPECT_EQ(told.param(), R"("instruction")");
  EXPECT_EQ(live.post("/v1/embeddings", {{"input", "a"}}).status, 501);
}

}  // namespace
}  // namespace skein
