// Answers of more choices than their key may have waiting at once.
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein::testing {
namespace {

constexpr uint32_t kChoices = 128;

class ManyChoices : public ::testing::Test {
 protected:
  ManyChoices() : other_(live_.add_key("other")), key_(live_.add_key("key")) {}

  // As the keys of others see it: one that has just asked is one that may ask again.
  void let_other_ask() {
    const Json body = {{"prompt", "a"}, {"max_tokens", 1}};
    ASSERT_EQ(live_.post("/v1/completions", body, other_).status, 200);
  }
  static Json body(int max_tokens) {
    return {{"prompt", "ab"},   {"n", kChoices}, {"max_tokens", max_tokens},
            {"temperature", 1}, {"seed", 7},     {"ignore_eos", true},
            {"timeout", 60}};
  }

  LiveServer live_;
  const std::string other_, key_;
};

// A machine that stands idle has ended nothing lately, which is no sign that it is slow.
TEST_F(ManyChoices, AnIdleServerTakesAWholeRequest) {
  live_.start();
  const HttpAnswer alone = live_.post("/v1/completions", body(2), key_);
  ASSERT_EQ(alone.status, 200) << alone.text;
  let_other_ask();
  const HttpAnswer answer = live_.post("/v1/completions", body(2), key_);
  ASSERT_EQ(answer.status, 200) << answer.text;
  ASSERT_EQ(answer.json["choices"].size(), kChoices);
  EXPECT_EQ(answer.json["choices"], alone.json["choices"]) << "whenever they come in";
  EXPECT_EQ(answer.json["usage"]["completion_tokens"], 2 * kChoices);
  EXPECT_EQ(answer.json["usage"]["prompt_tokens"], 2);
}

TEST_F(ManyChoices, SoDoesAQueueWithFewerPlaces) {
  live_.serving().engine.scheduler.max_queue = 4;
  live_.start();
  const HttpAnswer answer = live_.post("/v1/completions", body(2), key_);
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.json["choices"].size(), kChoices);
}

TEST_F(ManyChoices, AStreamHasThemAll) {
  live_.start();
  let_other_ask();
  Json wanted = body(3);
  wanted["stream"] = true;
  RawClient client = live_.client();
  client.send(
      LiveServer::request("POST", "/v1/completions", key_, "application/json", wanted.dump()));
  const std::string stream = client.read_until("[DONE]", 60'000);
  size_t ends = 0;
  constexpr std::string_view kEnd = "\"finish_reason\":\"length\"";
  for (size_t at = stream.find(kEnd); at != std::string::npos; at = stream.find(kEnd, at + 1)) {
    ++ends;
  }
  EXPECT_EQ(ends, kChoices);
}

// Whoever hangs up before all of them have come in leaves nothing behind.
TEST_F(ManyChoices, WhatIsCancelledComesInNoMore) {
  live_.start();
  let_other_ask();
  {
    RawClient client = live_.client();
    Json wanted = body(500);
    wanted["stream"] = true;
    client.send(
        LiveServer::request("POST", "/v1/completions", key_, "application/json", wanted.dump()));
    client.read_until("data: ", 20'000);
  }
  EXPECT_TRUE(eventually(
      [&] {
        const std::string page = live_.get("/metrics", key_).text;
        return page.find("vllm:num_requests_running{model_name=\"tiny\"} 0\n") !=
                   std::string::npos &&
               page.find("vllm:num_requests_waiting{model_name=\"tiny\"} 0\n") != std::string::npos;
      },
      std::chrono::seconds(20)));
}

}  // namespace
}  // namespace skein::testing
