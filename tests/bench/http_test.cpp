#include <arpa/inet.h>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "bench/http_load.h"
#include "bench/sse_answer.h"

namespace skein::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Url, NamesHostPortAndPath) {
  const auto plain = parse_url("http://127.0.0.1:8080");
  ASSERT_TRUE(plain.ok()) << plain.message();
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->path, "/v1");
  EXPECT_EQ(parse_url("http://a/v1/")->path, "/v1");
  EXPECT_EQ(parse_url("http://a/v1/")->port, 80);
  EXPECT_EQ(parse_url("http://a/models/x")->path, "/models/x/v1");
  EXPECT_EQ(parse_url("http://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9")->port, 9);
  // The Host header needs the brackets again: without them the port is part of the address.
  EXPECT_EQ(parse_url("http://[::1]:9")->authority(), "[::1]:9");
  EXPECT_EQ(parse_url("http://a/v1")->authority(), "a:80");
  for (const char* wrong : {"", "a:80", "https://a", "http://", "http://a:", "http://a:0",
                            "http://a:x", "http://a:70000"}) {
    EXPECT_FALSE(parse_url(wrong).ok()) << wrong;
  }
}

struct Read {
  std::vector<std::string> events;
  std::string body;
  int status = 0;
  bool complete = false;
  Status fed;
};

// The bytes in pieces of `size`.
Read read_in_pieces(std::string_view bytes, size_t size) {
  Read read;
  AnswerReader reader([&](std::string_view data) { read.events.emplace_back(data); });
  for (size_t at = 0; at < bytes.size() && read.fed.ok(); at += size) {
    read.fed = reader.feed(bytes.substr(at, size));
  }
  if (read.fed.ok() && !reader.complete()) read.fed = reader.closed();
  read.body = reader.body();
  read.status = reader.status();
  read.complete = reader.complete();
  return read;
}

TEST(AnswerReader, ReadsAStreamHoweverItIsCut) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n"
      "b\r\ndata: {\"a\":\r\n8;x=y\r\n1}\n\n: ke\r\n12\r\nep\n\ndata: [DONE]\n\n\r\n0\r\n\r\n";
  for (size_t size = 1; size < chunked.size(); ++size) {
    const Read read = read_in_pieces(chunked, size);
    ASSERT_TRUE(read.fed.ok()) << size << ": " << read.fed.message();
    EXPECT_TRUE(read.complete);
    EXPECT_EQ(read.status, 200);
    EXPECT_THAT(read.events, ElementsAre("{\"a\":1}", "[DONE]"));
  }
}

TEST(AnswerReader, ReadsPlainAnswersAndThoseThatEndWithTheConnection) {
  const Read refused = read_in_pieces(
      "HTTP/1.1 429 Too Many\r\ncontent-length: 5\r\nRetry-After: 1\r\n\r\nsorry and more", 3);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.body, "sorry");
  EXPECT_TRUE(refused.complete);
  const Read open =
      read_in_pieces("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata:x\r\n\r\n", 4);
  EXPECT_THAT(open.events, ElementsAre("x"));
  EXPECT_TRUE(open.complete);
}

TEST(AnswerReader, RefusesWhatIsNoAnswer) {
  for (const char* wrong :
       {"SSH-2.0\r\n\r\n", "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "HTTP/1.1 200 OK\r\n"}) {
    EXPECT_FALSE(read_in_pieces(wrong, 7).fed.ok()) << wrong;
  }
  const std::string endless = "HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x');
  EXPECT_FALSE(read_in_pieces(endless, 4096).fed.ok());
}

TEST(Events, CountTextAndUsage) {
  StreamTotals totals;
  EXPECT_FALSE(read_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", totals));
  EXPECT_TRUE(read_event(R"({"choices":[{"delta":{"content":"Hi"}}]})", totals));
  EXPECT_TRUE(read_event(R"({"choices":[{"index":0,"text":" there"}]})", totals));
  EXPECT_FALSE(read_event(R"({"choices":[{"text":"","finish_reason":"length"}]})", totals));
  EXPECT_FALSE(read_event(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}})",
      totals));
  EXPECT_FALSE(read_event("[DONE]", totals));
  EXPECT_EQ(totals.events_with_text, 2U);
  EXPECT_EQ(totals.prompt_tokens, 7U);
  EXPECT_EQ(totals.generated_tokens, 9U);
  EXPECT_EQ(totals.cached_tokens, 4U);
  EXPECT_TRUE(totals.done);
  EXPECT_TRUE(totals.error.ok());
  for (const char* wrong : {"", "[1]", "{", R"({"error":{"message":"no"}})"}) {
    StreamTotals broken;
    EXPECT_FALSE(read_event(wrong, broken));
    EXPECT_FALSE(broken.error.ok()) << wrong;
  }
}

// A server that answers every connection on a thread of its own with what `answer` makes of the
// request, as soon as `crowd` connections have been there at once.
class TestServer {
 public:
  using Answer = std::function<std::vector<std::string>(const std::string& request)>;

  explicit TestServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 64);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    target.url = {"127.0.0.1", ntohs(address.sin_port), "/v1"};
    thread_ = std::thread([this] { accept_all(); });
  }
  ~TestServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
    ::close(listener_);
  }

  HttpTarget target;
  int crowd = 1;
  bool keeps_open = false;  // after an answer, until the client leaves
  std::mutex mutex;
  int most_at_once = 0;
  std::vector<std::string> requests;

 private:
  void accept_all() {
    for (int client; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      connections_.emplace_back([this, client] { serve(client); });
    }
  }
  void serve(int client) {
    {
      std::unique_lock lock(mutex);
      most_at_once = std::max(most_at_once, ++live_);
      crowded_.notify_all();
      crowded_.wait(lock, [this] { return most_at_once >= crowd; });
    }
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos || request.back() != '}') {
      const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      request.append(buffer, static_cast<size_t>(got));
      if (request.starts_with("GET") && request.ends_with("\r\n\r\n")) break;
    }
    {
      const std::lock_guard lock(mutex);
      requests.push_back(request);
    }
    for (const std::string& part : answer_(request)) {
      ::send(client, part.data(), part.size(), MSG_NOSIGNAL);
    }
    while (keeps_open && ::recv(client, buffer, sizeof buffer, 0) > 0) {
    }
    {
      const std::lock_guard lock(mutex);
      --live_;
    }
    ::close(client);
  }

  const Answer answer_;
  int listener_ = -1;
  int live_ = 0;
  std::condition_variable crowded_;
  std::thread thread_;
  std::vector<std::thread> connections_;
};

std::vector<std::string> three_tokens(const std::string&) {
  const std::string word = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
  return {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", word, word, word,
          "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\n"
          "data: [DONE]\n\n"};
}

TEST(HttpLoad, AClosedLoopKeepsSoManyInFlight) {
  TestServer server(three_tokens);
  server.crowd = 3;
  server.target.model = "m";
  server.target.keys[static_cast<size_t>(Priority::NORMAL)] = "sk-1";
  const SystemClock clock;
  const std::atomic<bool> cancel{false};
  uint64_t tokens = 0;
  const auto items = built_in_workload(9, 3, false);
  const LoadRun run = run_http_load(
      server.target, items, 3, clock, [&](uint64_t n) { tokens = n; }, cancel);
  ASSERT_EQ(run.requests.size(), 9U);
  EXPECT_EQ(server.most_at_once, 3);
  EXPECT_EQ(tokens, 27U);
  for (const RequestRecord& request : run.requests) {
    EXPECT_TRUE(request.status.ok()) << request.status.message();
    EXPECT_TRUE(request.complete);
    EXPECT_EQ(request.arrivals.size(), 3U);
    EXPECT_EQ(request.generated_tokens, 3U);
    EXPECT_GE(request.arrivals.front(), request.sent);
    EXPECT_GE(request.ended, request.arrivals.back());
  }
  const BenchmarkResult result = summarize("serve", 3, run);
  EXPECT_EQ(result.total_tokens, 27U);
  ASSERT_EQ(server.requests.size(), 9U);
  EXPECT_THAT(server.requests[0], HasSubstr("POST /v1/completions HTTP/1.1"));
  EXPECT_THAT(server.requests[0], HasSubstr("\r\nHost: " + server.target.url.authority() + "\r\n"));
  EXPECT_THAT(server.requests[0], HasSubstr("Authorization: Bearer sk-1\r\n"));
  EXPECT_THAT(server.requests[0], HasSubstr("\"ignore_eos\":true"));
  EXPECT_THAT(server.requests[0], HasSubstr("\"model\":\"m\""));
}

TEST(HttpLoad, AChatMayBeginItsAnswerAndEndByItself) {
  TestServer server(three_tokens);
  server.target.chat = true;
  WorkItem item;
  item.text = "Quote: one two three";
  item.beginning = "one";
  item.temperature = 0.5F;
  item.number = 7;
  item.ends_by_itself = true;
  item.max_tokens = 3;
  const SystemClock clock;
  const std::atomic<bool> cancel{false};
  const LoadRun run = run_http_load(
      server.target, {&item, 1}, 1, clock, [](uint64_t) {}, cancel);
  ASSERT_EQ(server.requests.size(), 1U);
  const std::string& sent = server.requests[0];
  EXPECT_THAT(sent, HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(sent, HasSubstr(R"("messages":[{"content":"Quote: one two three","role":"user"},)"
                              R"({"content":"one","role":"assistant"}])"));
  EXPECT_THAT(sent, HasSubstr(R"("continue_final_message":true)"));
  EXPECT_THAT(sent, HasSubstr(R"("add_generation_prompt":false)"));
  EXPECT_THAT(sent, HasSubstr(R"("ignore_eos":false)"));
  EXPECT_THAT(sent, HasSubstr(R"("temperature":0.5)"));
  EXPECT_THAT(sent, HasSubstr(R"("seed":7)"));
}

TEST(HttpLoad, AnOpenLoopSendsAtItsTimes) {
  TestServer server(three_tokens);
  const SystemClock clock;
  const std::atomic<bool> cancel{false};
  auto items = built_in_workload(3, 3, false);
  for (size_t i = 0; i < 3; ++i) items[i].arrival_us = static_cast<TimeUs>(i) * 10'000;
  const LoadRun run = run_http_load(
      server.target, items, 0, clock, [](uint64_t) {}, cancel);
  ASSERT_EQ(run.requests.size(), 3U);
  EXPECT_GE(run.requests[2].sent - run.requests[0].sent, 19'000);
  EXPECT_TRUE(run.requests[2].complete);
}

TEST(HttpLoad, FailuresAreToldAndTheRestGoesOn) {
  std::atomic<int> count{0};
  TestServer server([&](const std::string& request) -> std::vector<std::string> {
    switch (count++ % 3) {
      case 0:
        return three_tokens(request);
      case 1:
        return {"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nfull"};
      default:
        return {
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            "data: {\"error\":{\"message\":\"step failed\"}}\n\n"};
    }
  });
  const SystemClock clock;
  const std::atomic<bool> cancel{false};
  const auto items = built_in_workload(6, 3, false);
  const LoadRun run = run_http_load(
      server.target, items, 1, clock, [](uint64_t) {}, cancel);
  const BenchmarkResult result = summarize("serve", 1, run);
  EXPECT_EQ(result.num_requests, 2U);
  EXPECT_EQ(result.failed_requests, 4U);
  EXPECT_THAT(run.requests[1].status.message(), HasSubstr("429: full"));
  EXPECT_THAT(run.requests[2].status.message(), HasSubstr("step failed"));
}

TEST(HttpLoad, AServerThatIsNotThereFailsEveryRequest) {
  HttpTarget target;
  target.url = {"127.0.0.1", 1, "/v1"};
  const SystemClock clock;
  const std::atomic<bool> cancel{false};
  const auto items = built_in_workload(2, 3, false);
  const LoadRun run = run_http_load(
      target, items, 2, clock, [](uint64_t) {}, cancel);
  EXPECT_EQ(summarize("serve", 2, run).failed_requests, 2U);
  EXPECT_FALSE(first_model(target).ok());
}

TEST(HttpLoad, SilenceEndsARequestAndCtrlCTheRun) {
  TestServer server([](const std::string&) -> std::vector<std::string> {
    return {
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
        "{\"choices\":[{\"text\":\"a\"}]}\n\n"};
  });
  server.keeps_open = true;  // one token, then nothing
  const SystemClock clock;
  std::atomic<bool> cancel{false};
  server.target.patience_us = 20'000;
  const auto items = built_in_workload(1, 3, false);
  const LoadRun silent = run_http_load(
      server.target, items, 1, clock, [](uint64_t) {}, cancel);
  EXPECT_EQ(silent.requests[0].status.code(), Code::kDeadlineExceeded);
  server.target.patience_us = 10 * kUsPerSecond;
  const LoadRun cut = run_http_load(
      server.target, items, 1, clock, [&](uint64_t) { cancel = true; }, cancel);
  EXPECT_TRUE(cut.interrupted);
  ASSERT_EQ(cut.requests.size(), 1U);
  EXPECT_EQ(cut.requests[0].generated_tokens, 1U);
  EXPECT_FALSE(cut.requests[0].complete);
}

TEST(HttpLoad, TheFirstModelIsTheServersOwn) {
  TestServer server([](const std::string&) -> std::vector<std::string> {
    const std::string body = R"({"object":"list","data":[{"id":"org/name"},{"id":"b"}]})";
    return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
            body};
  });
  server.target.keys[static_cast<size_t>(Priority::LOW)] = "sk-low";
  const auto model = first_model(server.target);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(*model, "org/name");
  EXPECT_THAT(server.requests[0], HasSubstr("Bearer sk-low"));
}

}  // namespace
}  // namespace skein::bench
