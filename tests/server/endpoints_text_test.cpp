// /tokenize, /detokenize, /apply-template, count_tokens, input_tokens, /v1/models.
#include <fstream>
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein::testing {
namespace {

constexpr int kImStart = 1;
constexpr int kImEnd = 2;

int id_of(char c) {
  return 3 + static_cast<unsigned char>(c);
}

Json ids_of(std::string_view text) {
  Json ids = Json::array();
  for (const char c : text) ids.push_back(id_of(c));
  return ids;
}

TEST(TextEndpoints, TokenizeTakesBothNamesAndGivesBoth) {
  LiveServer live;
  live.start();
  const HttpAnswer prompt = live.post("/tokenize", {{"prompt", "Hi you"}});
  ASSERT_EQ(prompt.status, 200) << prompt.text;
  EXPECT_EQ(prompt.json["tokens"], ids_of("Hi you"));
  EXPECT_EQ(prompt.json["count"], 6);
  EXPECT_EQ(prompt.json["max_model_len"], 1024);
  EXPECT_FALSE(prompt.json.contains("token_strs"));
  const HttpAnswer content =
      live.post("/tokenize", {{"content", "Hi you"}, {"model", "tiny"}, {"with_pieces", true}});
  EXPECT_EQ(content.json["tokens"], ids_of("Hi you"));
  EXPECT_EQ(content.json["token_strs"][1], "i");
}

TEST(TextEndpoints, WhatAUserTypesIsNoControlToken) {
  LiveServer live;
  live.start();
  EXPECT_EQ(live.post("/tokenize", {{"prompt", "<|im_end|>"}}).json["tokens"],
            ids_of("<|im_end|>"));
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "<|im_end|>"}}}}};
  const Json tokens = live.post("/tokenize", chat).json["tokens"];
  EXPECT_EQ(tokens[0], kImStart);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), Json(kImEnd)), 1) << tokens.dump();
}

TEST(TextEndpoints, TheTemplateIsWhatTokenizeAndCountTokensCount) {
  LiveServer live;
  live.start();
  const Json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const HttpAnswer text = live.post("/apply-template", {{"messages", messages}});
  ASSERT_EQ(text.status, 200) << text.text;
  EXPECT_EQ(text.json["prompt"], "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  const HttpAnswer tokens = live.post("/tokenize", {{"messages", messages}});
  EXPECT_EQ(tokens.json["count"], tokens.json["tokens"].size());
  const HttpAnswer back = live.post("/detokenize", {{"tokens", tokens.json["tokens"]}});
  EXPECT_EQ(back.json["prompt"], text.json["prompt"]);
  EXPECT_EQ(back.json["content"], text.json["prompt"]);
  const HttpAnswer count =
      live.post("/v1/messages/count_tokens", {{"model", "tiny"}, {"messages", messages}});
  EXPECT_EQ(count.json, Json({{"input_tokens", tokens.json["count"]}}));
  EXPECT_EQ(live.post("/v1/responses/input_tokens", {{"input", "Hello"}}).json,
            Json({{"object", "response.input_tokens"}, {"input_tokens", tokens.json["count"]}}));
  const HttpAnswer answer = live.post(
      "/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}, {"model", "tiny"}});
  EXPECT_EQ(answer.json["usage"]["prompt_tokens"], tokens.json["count"]) << answer.text;
}

// What a router asks for, to know which server has a prompt's beginning in its cache.
TEST(TextEndpoints, RenderedTokensAreThoseOfTheRequest) {
  LiveServer live;
  live.start();
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"max_tokens", 3}};
  const HttpAnswer rendered = live.post("/v1/chat/completions/render", chat);
  ASSERT_EQ(rendered.status, 200) << rendered.text;
  EXPECT_EQ(rendered.json,
            Json({{"token_ids",
                   live.post("/tokenize", {{"messages", chat["messages"]}}).json["tokens"]}}));
  const Json texts = {{"prompt", {"Hello", "You"}}};
  EXPECT_EQ(live.post("/v1/completions/render", texts).json,
            Json({{{"token_ids", ids_of("Hello")}}, {{"token_ids", ids_of("You")}}}));
  EXPECT_EQ(live.post("/v1/completions/render", {{"prompt", {70, 71}}}).json,
            Json::array({{{"token_ids", {70, 71}}}}));
  EXPECT_EQ(live.post("/v1/chat/completions/render", {{"messages", "none"}}).param(),
            "\"messages\"");
  EXPECT_EQ(live.post("/v1/completions/render", Json::object()).param(), "\"prompt\"");
}

TEST(TextEndpoints, WrongInputNamesItsField) {
  LiveServer live;
  live.start();
  const HttpAnswer outside = live.post("/detokenize", {{"tokens", {5, 256}}});
  EXPECT_EQ(outside.status, 400);
  EXPECT_EQ(outside.param(), "\"tokens\"");
  EXPECT_NE(outside.text.find("256"), std::string::npos) << outside.text;
  EXPECT_EQ(live.post("/detokenize", {{"tokens", {-1}}}).status, 400);
  EXPECT_EQ(live.post("/tokenize", Json::object()).param(), "\"prompt\"");
  EXPECT_EQ(live.post("/tokenize", {{"prompt", 3}}).status, 400);
  EXPECT_EQ(live.ask("POST", "/tokenize", "", "application/json", "{").error_code(),
            "\"invalid_json\"");
  EXPECT_EQ(live.post("/apply-template", Json::object()).param(), "\"messages\"");
  const HttpAnswer counted = live.post("/v1/messages/count_tokens", Json::object());
  EXPECT_EQ(counted.status, 400);
  EXPECT_EQ(counted.json["type"], "error") << counted.text;
}

TEST(TextEndpoints, ModelsThatAreNotThere) {
  LiveServer live;
  live.start();
  const HttpAnswer unknown = live.post("/tokenize", {{"prompt", "x"}, {"model", "nobody"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error_code(), "\"model_not_found\"");
  EXPECT_EQ(live.post("/v1/messages/count_tokens",
                      {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"model", "nobody"}})
                .json["error"]["type"],
            "not_found_error");
  const HttpAnswer broken = live.post("/tokenize", {{"prompt", "x"}, {"model", "broken"}});
  EXPECT_EQ(broken.status, 503) << broken.text;
  EXPECT_EQ(broken.error_code(), "\"model_load_failed\"");
  EXPECT_NE(broken.head.find("Retry-After: "), std::string::npos) << broken.head;
  EXPECT_EQ(broken.text.find(live.folder().path()), std::string::npos) << "a path leaks";
}

// The client is told what the model lacks; why is for the log, for it may name paths.
TEST(TextEndpoints, ModelsWithoutTokenizerOrTemplate) {
  LiveServer live;
  const std::string tiny = live.folder() / "tiny";
  std::ofstream(tiny + "/chat_template.jinja") << "{% for m in messages %}no end";
  live.start();
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 1}};
  for (const char* path :
       {"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/apply-template"}) {
    const HttpAnswer answer = live.post(path, chat);
    EXPECT_EQ(answer.status, 501) << path << answer.text;
    EXPECT_NE(answer.text.find("chat template"), std::string::npos) << answer.text;
    EXPECT_EQ(answer.text.find(tiny), std::string::npos) << "a path leaks";
  }
  EXPECT_EQ(live.post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}).status, 200);
  std::ofstream(tiny + "/tokenizer.json") << "{}";
  const std::string other = "org/other";  // not loaded yet
  EXPECT_EQ(live.post("/apply-template", {{"messages", chat["messages"]}, {"model", other}}).status,
            501);
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const HttpAnswer answer = live.post(path, {{"prompt", "x"}, {"model", other}});
    EXPECT_EQ(answer.status, 501) << path << answer.text;
    EXPECT_NE(answer.text.find("tokenizer"), std::string::npos) << answer.text;
  }
  EXPECT_EQ(live.post("/detokenize", {{"tokens", {5}}, {"model", other}}).status, 501);
}

// The first request for a model waits for its load on another thread; its text work comes back to a
// worker, and the loading thread stays free.
TEST(TextEndpoints, TheFirstRequestsLoadTheModel) {
  LiveServer live;
  live.start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(live.client());
    const Json body = {{"prompt", "x"}, {"model", i % 2 == 0 ? "tiny" : "org/other"}};
    clients.back().send(
        LiveServer::request("POST", "/tokenize", "", "application/json", body.dump()));
  }
  for (RawClient& client : clients) EXPECT_EQ(LiveServer::read(client).json["count"], 1);
}

TEST(ModelEndpoints, AKeySeesWhatItMayUse) {
  LiveServer live;
  const std::string all = live.add_key("all");
  const std::string one = live.add_key("one", {"org/other"});
  live.start();
  const auto names = [&](const std::string& key) {
    Json ids = Json::array();
    const HttpAnswer answer = live.get("/v1/models", key);
    for (const Json& model : answer.json["data"]) ids.push_back(model["id"]);
    return ids;
  };
  EXPECT_EQ(names(all), Json({"tiny", "org/other", "broken"}));
  EXPECT_EQ(names(one), Json({"org/other"}));
  EXPECT_EQ(live.get("/v1/models").status, 401);
  EXPECT_EQ(live.get("/v1/models/org/other", one).json["id"], "org/other");
  EXPECT_EQ(live.get("/v1/models/org%2Fother", one).json["object"], "model");
  EXPECT_EQ(live.get("/v1/models/tiny", one).status, 403);
  EXPECT_EQ(live.get("/v1/models/tiny", all).status, 200);
  EXPECT_EQ(live.get("/v1/models/nobody", all).status, 404);
  EXPECT_EQ(live.post("/tokenize", {{"prompt", "x"}}, one).status, 403) << "the default is tiny";
  EXPECT_EQ(live.post("/tokenize", {{"prompt", "x"}, {"model", "org/other"}}, one).status, 200);
  const Json loaded = live.get("/v1/models/org/other", one).json;
  EXPECT_EQ(loaded["max_model_len"], 1024);
  EXPECT_EQ(loaded["sampling"], Json::parse(R"({"temperature": 0.7, "top_p": 0.95, "min_p": 0.05,
      "top_k": 0, "typical_p": 1, "repetition_penalty": 1, "from": "general"})"));
}

}  // namespace
}  // namespace skein::testing
