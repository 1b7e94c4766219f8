#include "server/http/http_server.h"

#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/resource.h>
#include <thread>

#include "server/test_application.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using http::Request;
using http::Responder;
using http::WriteResult;
using testing::eventually;
using testing::get;
using testing::post;
using testing::RawClient;
using testing::TestServer;

TEST(HttpServer, KeepsAliveAndAnswersPipelinedRequestsInOrder) {
  TestServer test;
  test.application.handlers["/slow"] = [](const Request&, const Responder& responder) {
    std::this_thread::sleep_for(30ms);
    responder.send({.body = "slow"});
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/slow") + post("/echo", "1") + "\r\n" + get("/slow") + post("/echo", "2"));
  for (const char* expected : {"slow", "POST:1", "slow", "POST:2"}) {
    EXPECT_EQ(client.read_answer().body, expected);
  }
  client.send(get("/echo", "Connection: close\r\n") + get("/echo"));
  const std::string rest = client.read_all();
  EXPECT_NE(rest.find("Connection: close"), std::string::npos);
  EXPECT_EQ(rest.find("HTTP/1.1", 1), std::string::npos) << "nothing after close";
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, Http10ClosesUnlessAsked) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  client.send("GET /echo HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(client.read_answer().head.find("Connection: keep-alive"), std::string::npos);
  client.send("GET /echo HTTP/1.0\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_FALSE(client.receive());
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, AConnectionEndsAfterSoManyRequests) {
  http::ServerOptions options;
  options.max_requests_per_connection = 3;
  TestServer test(options);
  test.start();
  RawClient client = test.client();
  client.send(get("/echo") + get("/echo") + get("/echo") + get("/echo"));
  for (const bool last : {false, false, true}) {
    const auto answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.head.find("Connection: close") != std::string::npos, last);
  }
  EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, HeadHasTheHeadOfGet) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n" + get("/echo"));
  const auto head = client.read_answer(testing::kPatienceMs, false);
  EXPECT_NE(head.head.find("Content-Length: 5"), std::string::npos);
  EXPECT_EQ(client.read_answer().body, "GET:");
}

TEST(HttpServer, RequestIdIsEchoedOrMade) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  client.send(get("/echo", "X-Request-Id: mine-1\r\n"));
  EXPECT_NE(client.read_answer().head.find("X-Request-Id: mine-1\r\n"), std::string::npos);
  client.send(get("/echo", "X-Request-Id: not one word\r\n"));
  EXPECT_NE(client.read_answer().head.find("X-Request-Id: req-"), std::string::npos);
}

TEST(HttpServer, LimitsOfHeadAndBody) {
  TestServer test;
  test.start();
  const auto status_of = [&](const std::string& bytes) {
    RawClient client = test.client();
    client.send(bytes);
    const int status = client.read_answer().status;
    client.read_all();
    EXPECT_TRUE(client.ended());
    EXPECT_TRUE(test.healthy());
    return status;
  };
  EXPECT_EQ(status_of(get("/", "A: " + std::string(70 << 10, 'x') + "\r\n")), 431);
  EXPECT_EQ(status_of("GET /" + std::string(70 << 10, 'x')), 431);
  std::string fields;
  for (int i = 0; i < 100; ++i) fields += fmt::format("F{}: 1\r\n", i);
  EXPECT_EQ(status_of(get("/", fields)), 431) << "Host is one, too";
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8388609\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n"),
            400);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string large = chunked;
  for (int i = 0; i < 9; ++i) large += "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  EXPECT_EQ(status_of(large), 413) << "counted while reading";
  for (const char* size : {"-2", "+1", "0x1", " 1", "1 ", "", "g"}) {
    EXPECT_EQ(status_of(chunked + size + "\r\nx\r\n0\r\n\r\n"), 400) << size;
  }
  EXPECT_EQ(status_of(chunked + "ffffffffffffffff\r\n"), 413);
  EXPECT_EQ(status_of(chunked + "1;" + std::string(20 << 10, 'x')), 413);
  EXPECT_EQ(status_of(chunked + "0\r\nA: " + std::string(20 << 10, 'x')), 431);
}

TEST(HttpServer, ABodyAtTheLimitArrivesWhole) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  std::string body(testing::kTestBodyLimit, 'x');
  for (size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>('a' + i % 26);
  std::thread sender([&] { client.send(post("/echo", body)); });
  const auto answer = client.read_answer();
  sender.join();
  EXPECT_TRUE(answer.body == "POST:" + body);
}

TEST(HttpServer, ExpectContinue) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(client.read_answer().body, "POST:ab");
  client.send(
      "POST /refused HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 401) << "refused without its body";
}

TEST(HttpServer, RefusalsKeepTheConnectionWhereTheBodyIsSmall) {
  TestServer test;
  test.start();
  RawClient client = test.client();
  client.send(post("/refused", "{}") + get("/refused") + get("/echo"));
  EXPECT_EQ(client.read_answer().status, 401);
  EXPECT_EQ(client.read_answer().status, 401);
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(HttpServer, SlowClientsAreCut) {
  http::ServerOptions options;
  options.idle_timeout = 100ms;
  options.head_timeout = 150ms;
  options.body_timeout = 150ms;
  TestServer test(options);
  test.start();
  RawClient idle = test.client();
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.ended());

  RawClient slow_head = test.client();
  const auto begin = std::chrono::steady_clock::now();
  while (slow_head.send("G") && std::chrono::steady_clock::now() - begin < 140ms) {
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(slow_head.read_answer().status, 408);

  RawClient slow_body = test.client();
  slow_body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_EQ(slow_body.read_answer().status, 408);

  RawClient dripping = test.client();  // never idle, but slower than any client in good faith
  dripping.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  bool answered = false;
  for (int i = 0; i < 99 && !answered; ++i) {
    dripping.send("x");
    answered = dripping.receive(20);
  }
  EXPECT_TRUE(answered);
  EXPECT_EQ(dripping.read_answer().status, 408);
}

class CountingSink : public http::BodySink {
 public:
  CountingSink(std::atomic<uint64_t>& bytes, std::atomic<int>& finished, uint64_t refuse_at)
      : bytes_(bytes), finished_(finished), refuse_at_(refuse_at) {}
  std::optional<http::Response> write(std::string_view piece) override {
    bytes_ += piece.size();
    if (bytes_ > refuse_at_) return http::Response{.status = 507, .body = "full"};
    return std::nullopt;
  }
  std::optional<http::Response> finish() override {
    ++finished_;
    return std::nullopt;
  }

 private:
  std::atomic<uint64_t>& bytes_;
  std::atomic<int>& finished_;
  uint64_t refuse_at_;
};

TEST(HttpServer, UploadsGoToTheirSink) {
  TestServer test;
  std::atomic<uint64_t> bytes = 0;
  std::atomic<int> finished = 0;
  uint64_t refuse_at = UINT64_MAX;
  test.application.sinks["/upload"] = [&] {
    return std::make_shared<CountingSink>(bytes, finished, refuse_at);
  };
  test.application.handlers["/upload"] = [](const Request& request, Responder responder) {
    EXPECT_TRUE(request.body.empty());
    responder.send({.body = "stored"});
  };
  test.start();
  const std::string body(5 << 20, 'x');
  RawClient client = test.client();
  client.send(post("/upload", body));
  EXPECT_EQ(client.read_answer().body, "stored");
  EXPECT_EQ(bytes, body.size());
  EXPECT_EQ(finished, 1);

  refuse_at = bytes + 100'000;
  RawClient refused = test.client();
  refused.send(post("/upload", body));
  EXPECT_EQ(refused.read_answer().status, 507);

  RawClient gone = test.client();
  gone.send(post("/upload", body).substr(0, 200'000));
  gone.close();
  EXPECT_TRUE(eventually([&] { return test.server.stats().connections <= 2; }));
  EXPECT_EQ(finished, 1);
}

TEST(HttpServer, Cors) {
  http::ServerOptions options;
  options.cors_origins = {"https://good.example"};
  TestServer test(options);
  test.start();
  RawClient client = test.client();
  client.send(get("/echo", "Origin: https://good.example\r\n"));
  EXPECT_NE(client.read_answer().head.find("Access-Control-Allow-Origin: https://good.example"),
            std::string::npos);
  client.send(get("/echo", "Origin: https://bad.example\r\n"));
  EXPECT_EQ(client.read_answer().head.find("Access-Control-Allow-Origin"), std::string::npos);
  client.send(
      "OPTIONS /x HTTP/1.1\r\nHost: x\r\nOrigin: https://good.example\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization\r\n\r\n");
  const auto answer = client.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_NE(answer.head.find("Access-Control-Allow-Headers: authorization"), std::string::npos);
}

TEST(HttpServer, StopsGracefully) {
  TestServer test;
  std::atomic<bool> begun = false;
  test.application.handlers["/slow"] = [&](const Request&, const Responder& responder) {
    begun = true;
    std::this_thread::sleep_for(100ms);
    responder.send({.body = "slow"});
  };
  test.start();
  RawClient idle = test.client(), busy = test.client();
  idle.send(get("/echo"));
  EXPECT_EQ(idle.read_answer().status, 200);
  busy.send(get("/slow"));
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  const auto begin = std::chrono::steady_clock::now();
  test.server.stop(5s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s) << "it does not wait out its time";
  const auto answer = busy.read_answer();
  EXPECT_EQ(answer.body, "slow");
  EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_FALSE(test.client().connected());
}

TEST(HttpServer, StopsByForceAtTheDeadline) {
  TestServer test;
  std::vector<Responder> open;
  std::atomic<int> hung_up = 0, begun = 0;
  std::mutex mutex;
  test.application.handlers["/forever"] = [&](const Request&, const Responder& responder) {
    responder.on_hangup([&] { ++hung_up; });
    const std::lock_guard lock(mutex);
    open.push_back(responder);
    ++begun;
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/forever"));
  ASSERT_TRUE(eventually([&] { return begun == 1; }));
  test.server.stop(50ms);
  EXPECT_EQ(hung_up, 1);
  EXPECT_EQ(open[0].write("x"), WriteResult::kGone);
}

TEST(HttpServer, SurvivesWithoutFileDescriptors) {
  TestServer test;
  test.start();
  ASSERT_TRUE(test.healthy());
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  // Clients come first; the limit then leaves none for the server's side.
  std::vector<RawClient> clients;
  clients.reserve(64);
  const int probe = dup(0);
  ::close(probe);
  rlimit tight = old;
  tight.rlim_cur = static_cast<rlim_t>(probe) + 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 39; ++i) clients.push_back(test.client());
  EXPECT_TRUE(eventually([&] { return test.server.stats().accept_errors > 0; }));
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(500ms);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double cpu_s = static_cast<double>(after.tv_sec - before.tv_sec) +
                       static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  EXPECT_LT(cpu_s, 0.05) << "under 10 % of the half second";
  clients.clear();
  EXPECT_TRUE(eventually([&] { return test.healthy(); }));
  setrlimit(RLIMIT_NOFILE, &old);
}

TEST(HttpServer, TheWorkersQueueIsBounded) {
  TestServer test({}, {.threads = 1, .queue_limit = 1});
  std::atomic<bool> go = false;
  std::atomic<int> begun = 0;
  test.application.handlers["/wait"] = [&](const Request&, const Responder& responder) {
    ++begun;
    while (!go) std::this_thread::sleep_for(1ms);
    responder.send({.body = "done"});
  };
  test.start();
  RawClient first = test.client(), second = test.client(), third = test.client();
  first.send(get("/wait"));
  ASSERT_TRUE(eventually([&] { return begun == 1; }));
  second.send(get("/wait"));
  ASSERT_TRUE(eventually([&] { return test.server.stats().exchanges == 2; }));
  third.send(get("/wait"));
  const auto refused = third.read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After: 1"), std::string::npos);
  go = true;
  EXPECT_EQ(first.read_answer().body, "done");
  EXPECT_EQ(second.read_answer().body, "done");
}

TEST(HttpServer, StoppingRefusesWhatWaitsAndLeavesBehindWhatRuns) {
  TestServer test({}, {.threads = 1, .queue_limit = 64});
  std::atomic<bool> go = false;
  std::atomic<int> begun = 0;
  test.application.handlers["/slow"] = [&](const Request&, const Responder& responder) {
    ++begun;
    while (!go) std::this_thread::sleep_for(1ms);
    responder.send({.body = "done"});
  };
  test.start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(test.client());
    clients.back().send(get("/slow"));
  }
  ASSERT_TRUE(eventually([&] { return begun == 1 && test.server.stats().exchanges == 12; }, 20s));
  EXPECT_FALSE(test.server.stop(50ms)) << "a handler still runs";
  EXPECT_EQ(begun, 1) << "nothing that waited was begun";
  int refused = 0;
  for (RawClient& client : clients) refused += client.read_answer().status == 503 ? 1 : 0;
  EXPECT_EQ(refused, 11);
  go = true;
  EXPECT_TRUE(test.workers.join(20s));
}

TEST(HttpServer, ErrorsOfStartNameTheThing) {
  TestServer first;
  first.start();
  http::ServerOptions options;
  options.port = first.server.port();
  TestServer second(options);
  const Status taken = second.server.start();
  EXPECT_NE(taken.message().find(std::to_string(options.port)), std::string::npos);
  options.tls = http::TlsFiles{"/no/such/cert.pem", "/no/such/key.pem"};
  TestServer third(options);
  EXPECT_NE(third.server.start().message().find("cert.pem"), std::string::npos);
}

}  // namespace
}  // namespace skein
