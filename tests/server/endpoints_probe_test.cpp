// /livez, /health and /metrics: answered whatever the rest of the server is busy with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein {
namespace {

using testing::get;
using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::LiveServer;
using ::testing::Not;
using testing::RawClient;

class ProbeTest : public ::testing::Test {
 protected:
  HttpAnswer probe(std::string_view path, std::string_view host = "10.0.0.7:9090") {
    RawClient client(live_.server().probe_port());
    client.send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path, host));
    return LiveServer::read(client);
  }

  LiveServer live_;
};

// With no worker at all, what needs one is never answered.
TEST_F(ProbeTest, NeedNoWorkers) {
  live_.settings.workers.threads = 0;
  live_.start();
  for (const char* path : {"/livez", "/health", "/version", "/metrics"}) {
    EXPECT_EQ(live_.get(path).status, 200) << path;
  }
}

TEST_F(ProbeTest, HaveAPortOfTheirOwnWithoutAKey) {
  live_.add_key("someone");
  live_.settings.http.probe = {"127.0.0.1", 0};
  live_.start();
  for (const char* path : {"/livez", "/health", "/metrics"}) {
    EXPECT_EQ(probe(path).status, 200) << path;
    EXPECT_EQ(probe(path, "rebind.evil.example").status, 403) << path;
  }
  for (const char* path : {"/version", "/v1/models", "/admin/stats", "/", "/nothing"}) {
    EXPECT_EQ(probe(path).status, 404) << path;
  }
  EXPECT_EQ(live_.get("/metrics").status, 401) << "on the usual port it needs one";
}

// As HAProxy's httpchk asks where it is not told more.
TEST_F(ProbeTest, MayBeAskedByHttp10WithoutAHost) {
  live_.add_key("someone");
  live_.settings.http.probe = {"127.0.0.1", 0};
  live_.start();
  const auto ask = [](uint16_t port, std::string_view text) {
    RawClient client(port);
    client.send(text);
    return LiveServer::read(client);
  };
  const uint16_t port = live_.server().probe_port();
  EXPECT_EQ(ask(port, "GET /livez HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_EQ(ask(port, "GET /livez HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(ask(port, "GET http://evil.example/livez HTTP/1.0\r\n\r\n").status, 403);
  EXPECT_EQ(ask(port, "GET /livez HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
  EXPECT_EQ(ask(port, "GET /livez HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(ask(live_.server().port(), "GET /livez HTTP/1.0\r\n\r\n").status, 400);
}

TEST_F(ProbeTest, SayThatTheyAreRefusedByTheProbePort) {
  live_.add_key("someone");
  live_.settings.http.probe = {"127.0.0.1", 0};
  live_.start();
  const std::string text = probe("/livez", "rebind.evil.example").text;
  EXPECT_THAT(text, HasSubstr("The probe port answers only to its own names"));
  EXPECT_THAT(text, Not(HasSubstr("make a key")));
}

TEST_F(ProbeTest, WhoIsRefusedThereHasALineOfTheAuditTrail) {
  live_.settings.http.probe = {"127.0.0.1", 0};
  live_.start();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(probe("/metrics", "rebind.evil.example").status, 403);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("audit: refused with 403: GET /metrics from 127.0.0.1"));
}

TEST_F(ProbeTest, HaveConnectionsOfTheirOwn) {
  live_.settings.http.probe = {"127.0.0.1", 0};
  live_.settings.http.max_connections = 1;
  live_.settings.workers.threads = 0;
  live_.start();
  RawClient only = live_.client();
  // Its second request waits for a worker for ever.
  only.send(LiveServer::request("GET", "/livez", "", "", "") +
            LiveServer::request("GET", "/v1/models", "", "", ""));
  EXPECT_EQ(only.read_answer().status, 200);
  RawClient outside = live_.client();
  outside.send(LiveServer::request("GET", "/livez", "", "", ""));
  EXPECT_EQ(probe("/livez").status, 200);
  EXPECT_FALSE(outside.receive(200)) << "the usual port is full";
}

TEST_F(ProbeTest, AKeyForSomeModelsSeesTheSeriesOfThese) {
  const std::string all = live_.add_key("all"), some = live_.add_key("some", {"org/other"});
  live_.start();
  for (const char* model : {"tiny", "org/other"}) {
    const testing::Json body = {{"model", model}, {"prompt", "a"}, {"max_tokens", 1}};
    ASSERT_EQ(live_.post("/v1/completions", body, all).status, 200);
  }
  const std::string whole = live_.get("/metrics", all).text;
  EXPECT_THAT(whole, HasSubstr("model_name=\"tiny\""));
  EXPECT_THAT(whole, HasSubstr("model_name=\"org/other\""));
  const std::string part = live_.get("/metrics", some).text;
  EXPECT_THAT(part, Not(HasSubstr("model_name=\"tiny\"")));
  EXPECT_THAT(part, HasSubstr("model_name=\"org/other\""));
  EXPECT_THAT(part, HasSubstr("skein:model_loads_total"));
  EXPECT_THAT(part, HasSubstr("skein:budget_used_bytes{budget=\"requests\"} 0\n"));
  EXPECT_THAT(part, HasSubstr("skein:budget_limit_bytes{budget=\"requests\"} 268435456\n"));
  EXPECT_THAT(part, HasSubstr("skein:budget_limit_bytes{budget=\"models\"} 2147483648\n"));
  EXPECT_THAT(part, HasSubstr("skein:budget_limit_bytes{budget=\"files\"} 68719476736\n"));
  EXPECT_THAT(part, Not(HasSubstr("skein:budget_used_bytes{budget=\"models\"} 0\n")));
}

}  // namespace
}  // namespace skein
