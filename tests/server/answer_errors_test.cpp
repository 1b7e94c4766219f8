// An answer that fails says so in its stream, whatever has left before; no failure looks like an
// end.
#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <semaphore>

#include "server/live_server.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

// A stream of a model whose load fails after the client has seen a keepalive.
std::string failed_load(const char* path, Json body, const char* keepalive) {
  LiveServer live;
  std::binary_semaphore may_fail{0};
  live.before_load = [&](const std::string& model) {
    if (model == "broken") may_fail.acquire();
  };
  live.settings.keepalive_interval = 10ms;
  live.start();
  body["model"] = "broken";
  body["stream"] = true;
  body["max_tokens"] = 5;
  RawClient client = live.client();
  client.send(LiveServer::request("POST", path, {}, "application/json", body.dump()));
  EXPECT_FALSE(client.read_until(keepalive, 20'000).empty());
  may_fail.release();
  return client.read_until("\r\n0\r\n\r\n", 20'000);
}

TEST(AnswerErrors, AfterAKeepaliveAreAFrameOfTheStream) {
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  const std::string openai = failed_load("/v1/chat/completions", chat, ": keepalive\n\n");
  EXPECT_NE(openai.find("data: {\"error\":"), std::string::npos) << openai;
  EXPECT_NE(openai.find("\"model_load_failed\""), std::string::npos) << openai;
  EXPECT_EQ(openai.find("[DONE]"), std::string::npos) << openai;
  const std::string message = failed_load("/v1/messages", chat, "\"ping\"");
  EXPECT_NE(message.find("event: error\n"), std::string::npos) << message;
  EXPECT_NE(message.find("\"overloaded_error\""), std::string::npos) << message;
  const std::string response = failed_load("/v1/responses", {{"input", "Hi"}}, ": keepalive\n\n");
  EXPECT_NE(response.find("event: error\ndata: {\"type\":\"error\""), std::string::npos)
      << response;
  EXPECT_NE(response.find("\"model_load_failed\""), std::string::npos) << response;
  const std::string completion =
      failed_load("/v1/completions", {{"prompt", "Hi"}}, ": keepalive\n\n");
  EXPECT_NE(completion.find("\"model_load_failed\""), std::string::npos) << completion;
}

size_t open_sockets() {
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory itself is one of them
    if (read_symlink(file, gone).string().starts_with("socket:")) ++count;
  }
  return count;
}

// There is nobody left to tell, and no stream to tell it in.
TEST(AnswerErrors, AClientThatLeavesWhileItsModelLoadsHarmsNobody) {
  LiveServer live;
  std::binary_semaphore loading{0}, may_load{0};
  live.before_load = [&](const std::string& model) {
    if (model != "org/other") return;
    loading.release();
    may_load.acquire();
  };
  live.start();
  const size_t before = open_sockets();
  for (const bool stream : {false, true}) {
    const Json body = {{"prompt", "Hi"}, {"model", "org/other"}, {"stream", stream}};
    RawClient client = live.client();
    client.send(
        LiveServer::request("POST", "/v1/completions", {}, "application/json", body.dump()));
    if (!stream) loading.acquire();
    client.close();
  }
  EXPECT_TRUE(eventually([&] { return open_sockets() <= before; }, 20s))
      << "they are not let go of";
  may_load.release();
  EXPECT_EQ(live.post("/v1/completions", {{"prompt", "Hi"}, {"model", "org/other"}}).status, 200);
}

TEST(AnswerErrors, OfAReaderThatIsBehindPassTheOutboxLimit) {
  LiveServer live(32);
  live.start();
  RawClient slow = live.client(4096);
  const Json body = {{"prompt", "Hi"}, {"stream", true}, {"n", 24},           {"logprobs", 20},
                     {"seed", 1},      {"timeout", 1.5}, {"max_tokens", 900}, {"ignore_eos", true}};
  slow.send(LiveServer::request("POST", "/v1/completions", {}, "application/json", body.dump()));
  ASSERT_FALSE(slow.read_until("\r\n\r\n", 20'000).empty());
  // Its deadline passes, or the engine gives it up, while nobody reads.
  const auto running = [&] {
    const std::string page = live.get("/metrics").text;
    return page.find("vllm:num_requests_running{model_name=\"tiny\"} 0") == std::string::npos;
  };
  ASSERT_TRUE(eventually([&] { return !running(); }, 60s));
  const std::string rest = slow.read_until("\r\n0\r\n\r\n", 20'000);
  EXPECT_NE(rest.find("data: {\"error\":"), std::string::npos) << rest.size() << " bytes";
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
}

TEST(AnswerErrors, APlainAnswerThatOutgrowsTheBudgetEndsWithAnError) {
  LiveServer live(32);
  live.settings.request_memory_bytes = 1 << 20;
  live.start();
  Json body = {{"prompt", "Hi"}, {"n", 16},           {"logprobs", 20},
               {"seed", 1},      {"max_tokens", 900}, {"ignore_eos", true}};
  const HttpAnswer large = live.post("/v1/completions", body);
  EXPECT_EQ(large.status, 400) << large.text.substr(0, 200);
  EXPECT_EQ(large.error_code(), "\"answer_too_large\"");
  EXPECT_NE(large.text.find("524288"), std::string::npos) << large.text;
  body["n"] = 1;
  body["max_tokens"] = 20;
  EXPECT_EQ(live.post("/v1/completions", body).status, 200) << "its memory was given back";
}

TEST(AnswerErrors, AStopTextThatIsTooLongNamesItsFieldAndBothNumbers) {
  LiveServer live;
  live.start();
  const HttpAnswer answer =
      live.post("/v1/completions", {{"prompt", "Hi"}, {"stop", std::string(1025, 'x')}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.param(), "\"stop\"");
  EXPECT_NE(answer.text.find("1025"), std::string::npos) << answer.text;
  EXPECT_NE(answer.text.find("1024"), std::string::npos) << answer.text;
}

}  // namespace
}  // namespace skein::testing
