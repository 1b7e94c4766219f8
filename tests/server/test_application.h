// An application whose paths are set by the test.
#pragma once

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "server/http/http_server.h"
#include "server/http_client.h"

namespace skein::testing {

inline constexpr uint64_t kTestBodyLimit = 8 << 20;

class TestApplication : public http::Application {
 public:
  std::map<std::string, http::Handler> handlers;
  std::map<std::string, std::function<std::shared_ptr<http::BodySink>()>> sinks;

  TestApplication() {
    handlers["/echo"] = [](http::Request request, http::Responder responder) {
      responder.send(
          {.content_type = "text/plain", .body = request.head.method + ":" + request.body});
    };
  }

  std::variant<http::Accepted, http::Response> admit(const http::RequestHead& head,
                                                     const std::string&) override {
    const auto found = handlers.find(head.path);
    const auto& handler = found == handlers.end() ? handlers["/echo"] : found->second;
    if (head.path == "/refused") return http::Response{.status = 401, .body = "no"};
    http::Accepted accepted;
    accepted.handler = handler;
    accepted.body_limit_bytes = kTestBodyLimit;
    if (const auto sink = sinks.find(head.path); sink != sinks.end())
      accepted.sink = sink->second();
    return accepted;
  }

  http::Response refusal(int status, std::string_view message, std::string_view) override {
    return {.status = status, .body = std::string(message)};
  }
};

struct TestServer {
  explicit TestServer(http::ServerOptions options = {}) : server(std::move(options), application) {}
  void start() {
    const Status status = server.start();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  RawClient client(int receive_buffer = 0) { return RawClient(server.port(), receive_buffer); }
  // Whether it still serves.
  bool healthy() {
    RawClient other = client();
    return other.send(get("/echo")) && other.read_answer().status == 200;
  }

  TestApplication application;
  http::HttpServer server;
};

}  // namespace skein::testing
