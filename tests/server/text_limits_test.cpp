// What text work costs a key, and what is refused before it is done.
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein::testing {
namespace {

const Json kChat = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};

KeyRecord limited_key(uint32_t requests_per_minute, uint64_t tokens_per_minute) {
  KeyRecord key;
  key.name = "limited";
  key.requests_per_minute = requests_per_minute;
  key.tokens_per_minute = tokens_per_minute;
  return key;
}

struct TextRoute {
  const char* path;
  Json body;
};

std::vector<TextRoute> text_routes() {
  Json count = kChat;
  count["model"] = "tiny";
  return {{"/tokenize", {{"prompt", "Hello"}}},
          {"/detokenize", {{"tokens", {70, 71}}}},
          {"/apply-template", kChat},
          {"/v1/messages/count_tokens", count},
          {"/v1/chat/completions/render", kChat},
          {"/v1/completions/render", {{"prompt", "Hello"}}},
          {"/v1/responses/input_tokens", {{"input", "Hello"}}}};
}

TEST(TextLimits, TextWorkCountsAsRequestsOfTheKeysMinute) {
  for (const TextRoute& route : text_routes()) {
    LiveServer live;
    const std::string key = live.add_key(limited_key(1, 0));
    live.start();
    EXPECT_EQ(live.post(route.path, route.body, key).status, 200) << route.path;
    const HttpAnswer refused = live.post(route.path, route.body, key);
    EXPECT_EQ(refused.status, 429) << route.path;
    EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos) << route.path;
  }
}

TEST(TextLimits, TextWorkIsChargedToTheKeysTokens) {
  LiveServer live;
  const std::string key = live.add_key(limited_key(0, 100));
  live.start();
  const Json body = {{"prompt", std::string(600, 'a')}};
  EXPECT_EQ(live.post("/tokenize", body, key).json["count"], 600);
  const HttpAnswer refused =
      live.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}, key);
  EXPECT_EQ(refused.status, 429) << refused.text;
  EXPECT_NE(refused.head.find("Retry-After: 3"), std::string::npos)
      << refused.head;  // 500 are owed
}

// An over-long prompt is rendered and tokenized before anyone can tell.
TEST(TextLimits, WorkThatEndsInAnErrorIsARequestOfTheMinute) {
  const std::string beyond(1100, 'a');  // the context has 1,024
  Json chat = kChat;
  chat["messages"][0]["content"] = beyond;
  const TextRoute failing[] = {{"/v1/completions", {{"prompt", beyond}}},
                               {"/v1/chat/completions", chat},
                               {"/v1/responses", {{"input", beyond}}},
                               {"/tokenize", {{"prompt", std::string(30'000, ' ')}}},
                               {"/v1/completions", {{"prompt", "a"}, {"guided_regex", "("}}}};
  for (const TextRoute& route : failing) {
    LiveServer live;
    const std::string key = live.add_key(limited_key(1, 0));
    live.start();
    EXPECT_EQ(live.post(route.path, route.body, key).status, 400) << route.path;
    EXPECT_EQ(live.post(route.path, route.body, key).status, 429) << route.path;
    EXPECT_EQ(live.post("/tokenize", {{"prompt", "a"}}, key).status, 429) << route.path;
  }
}

TEST(TextLimits, WorkThatEndsInAnErrorIsChargedToTheKeysTokens) {
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    LiveServer live;
    const std::string key = live.add_key(limited_key(0, 500));
    live.start();
    const size_t length = path == std::string_view("/tokenize") ? 30'000 : 1100;
    EXPECT_EQ(live.post(path, {{"prompt", std::string(length, 'a')}}, key).status, 400) << path;
    const HttpAnswer refused = live.post("/tokenize", {{"prompt", "a"}}, key);
    EXPECT_EQ(refused.status, 429) << path << ": more than the minute's tokens are owed";
  }
}

// The last of many prompts fails, and all the others were tokenized.
TEST(TextLimits, ManyPromptsThatEndInAnErrorAreChargedForAllOfThem) {
  LiveServer live;
  const std::string key = live.add_key(limited_key(0, 3'000));
  live.start();
  Json prompts = std::vector<std::string>(20, std::string(1'000, 'a'));
  prompts.push_back(std::string(30'000, 'a'));
  EXPECT_EQ(live.post("/v1/completions/render", {{"prompt", prompts}}, key).status, 400);
  EXPECT_EQ(live.post("/tokenize", {{"prompt", "a"}}, key).status, 429);
}

TEST(TextLimits, WhoComesTooEarlyOwesNothingForIt) {
  LiveServer live;
  const std::string key = live.add_key(limited_key(0, 100));
  live.start();
  const Json large = {{"prompt", std::string(60, 'a')}, {"max_tokens", 1}};
  EXPECT_EQ(live.post("/v1/completions", large, key).status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(live.post("/v1/completions", large, key).status, 429);
  const Json small = {{"prompt", std::string(30, 'a')}, {"max_tokens", 1}};
  EXPECT_EQ(live.post("/v1/completions", small, key).status, 200);
}

TEST(TextLimits, TextThatCannotFitIsRefusedUnread) {
  LiveServer live;
  live.start();
  // A token stands for 12 bytes at most, and 1,024 more than the context's 1,024 are counted.
  const uint64_t limit = uint64_t{2048} * 12;
  const std::string at_limit(limit, ' '), beyond(limit + 1, ' ');
  EXPECT_EQ(live.post("/tokenize", {{"prompt", at_limit}}).json["count"], limit);
  const auto refused = [&](const char* path, const Json& body, const char* field) {
    const HttpAnswer answer = live.post(path, body);
    EXPECT_EQ(answer.status, 400) << path << answer.text;
    EXPECT_NE(answer.text.find(field), std::string::npos) << path << answer.text;
    EXPECT_NE(answer.text.find("24576"), std::string::npos) << path << answer.text;
    return answer.text;
  };
  EXPECT_NE(refused("/tokenize", {{"prompt", beyond}}, "prompt").find("24577"), std::string::npos);
  EXPECT_NE(refused("/v1/completions", {{"prompt", beyond}}, "prompt").find("24577"),
            std::string::npos);
  Json chat = kChat;
  chat["messages"][0]["content"] = beyond;
  refused("/v1/chat/completions", chat, "messages");
  refused("/tokenize", chat, "prompt");
  chat["model"] = "tiny";
  refused("/v1/messages/count_tokens", chat, "messages");
  refused("/v1/responses/input_tokens", {{"input", beyond}}, "\"input\"");
  refused("/v1/responses", {{"input", beyond}}, "\"input\"");
}

TEST(TextLimits, MoreTokensThanAContextAreNotTurnedIntoText) {
  LiveServer live;
  live.start();
  EXPECT_EQ(live.post("/detokenize", {{"tokens", std::vector<int>(2048, 70)}}).status, 200);
  const HttpAnswer refused = live.post("/detokenize", {{"tokens", std::vector<int>(2049, 70)}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.param(), "\"tokens\"");
  EXPECT_NE(refused.text.find("2049"), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("2048"), std::string::npos) << refused.text;
}

TEST(TokenLimits, ARequestBeyondAWholeMinuteIsRefusedForGood) {
  LiveServer live;
  const std::string key = live.add_key(limited_key(0, 100));
  live.start();
  const HttpAnswer refused =
      live.post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 50}, {"n", 2}}, key);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error_code(), "\"rate_limit_exceeded\"");
  EXPECT_NE(refused.text.find("102"), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("100"), std::string::npos) << refused.text;
  EXPECT_EQ(refused.head.find("Retry-After"), std::string::npos) << refused.head;
  EXPECT_EQ(
      live.post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 49}, {"n", 2}}, key).status,
      200);
}

// The prompt of kChat: markers, roles and "Hello", a token a byte.
constexpr int kPromptTokens = 24;

TEST(TokenLimits, AnAnswerWithoutMaxTokensEndsWhereTheKeysMinuteDoes) {
  constexpr int kLeft = 100 - kPromptTokens;
  for (const int choices : {1, 7, kLeft}) {
    LiveServer live(32);
    const std::string key = live.add_key(limited_key(0, 100));
    live.start();
    Json body = kChat;
    body["n"] = choices;
    body["ignore_eos"] = true;
    const HttpAnswer plain = live.post("/v1/chat/completions", body, key);
    ASSERT_EQ(plain.status, 429) << choices << plain.text;
    EXPECT_EQ(plain.error_code(), "\"rate_limit_exceeded\"");
    const Json& usage = plain.json["error"]["usage"];
    EXPECT_EQ(usage["prompt_tokens"], kPromptTokens) << plain.text;
    EXPECT_EQ(usage["completion_tokens"], kLeft / choices * choices) << plain.text;
    const HttpAnswer next =
        live.post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 90}}, key);
    EXPECT_EQ(next.status, 429) << "the minute is used up";
  }
}

TEST(TokenLimits, AStreamWhoseKeyIsOutOfTokensEndsWithAnErrorFrame) {
  LiveServer live;
  const std::string key = live.add_key(limited_key(0, 100));
  live.start();
  RawClient client = live.client();
  Json body = kChat;
  body["stream"] = true;
  body["ignore_eos"] = true;
  client.send(
      LiveServer::request("POST", "/v1/chat/completions", key, "application/json", body.dump()));
  // On a busy machine nothing may have left before the end: then it is a plain 429.
  const std::string stream = client.read_until("\"completion_tokens\":76", 20'000);
  EXPECT_NE(stream.find("\"rate_limit_exceeded\""), std::string::npos) << stream;
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
}

}  // namespace
}  // namespace skein::testing
