#include "server/observe/traces.h"

#include <arpa/inet.h>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace skein {
namespace {

using ::testing::HasSubstr;
using TracesJson = nlohmann::json;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSpan = "00f067aa0ba902b7";

std::string parent(std::string_view flags) {
  return fmt::format("00-{}-{}-{}", kTrace, kSpan, flags);
}

FinishedRequest finished() {
  FinishedRequest request;
  request.id = "chatcmpl-n1-1";
  request.route = "/v1/chat/completions";
  request.model = "tiny";
  request.key_name = "a \"key\"";
  request.prompt_tokens = 5;
  request.queue_us = 1'000;
  request.prefill_us = 2'000;
  request.decode_us = 4'000;
  request.total_us = 7'500;
  return request;
}

TEST(Traces, EndpointsAreUrls) {
  const auto plain = parse_trace_endpoint("http://collector");
  ASSERT_TRUE(plain.ok()) << plain.message();
  EXPECT_EQ(plain->host, "collector");
  EXPECT_EQ(plain->port, 4318);
  EXPECT_EQ(plain->path, "/v1/traces");
  const auto whole = parse_trace_endpoint("http://[::1]:99/a/b");
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ(whole->host, "::1");
  EXPECT_EQ(whole->port, 99);
  EXPECT_EQ(whole->path, "/a/b");
  for (const char* wrong :
       {"", "collector:4318", "https://collector", "http://", "http://:1", "http://a:0",
        "http://a:70000", "http://a:x", "http://a b", "http://u@a", "http://a/\r\nX: y"}) {
    const auto parsed = parse_trace_endpoint(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_THAT(parsed.message(), HasSubstr("--otlp-endpoint"));
  }
}

TEST(Traces, ParentsAreW3Cs) {
  const auto found = parse_trace_parent(parent("01"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->trace, kTrace);
  EXPECT_EQ(found->span, kSpan);
  EXPECT_TRUE(found->is_sampled);
  EXPECT_FALSE(parse_trace_parent(parent("00"))->is_sampled);
  EXPECT_TRUE(parse_trace_parent("01" + parent("01").substr(2) + "-more"));
  const std::string zero_trace = "00-" + std::string(32, '0') + "-" + kSpan + "-01";
  for (const std::string& wrong :
       {std::string(), parent("01") + "-more", "ff" + parent("01").substr(2), parent("0g"),
        parent("01").substr(0, 54), zero_trace,
        "00-" + std::string(kTrace) + "-" + std::string(16, '0') + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + std::string(kSpan) + "-01",
        std::string(55, '-')}) {
    EXPECT_FALSE(parse_trace_parent(wrong)) << wrong;
  }
}

TEST(Traces, SpansAddUpToTheRequest) {
  FinishedRequest request = finished();
  request.trace_parent = parent("01");
  constexpr uint64_t kEnd = 1'800'000'000'000'000'000;
  const TracesJson body =
      TracesJson::parse(spans_json({{request, kEnd}, {finished(), kEnd}}, {"n1", "1.0"}));
  const TracesJson& resource = body["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][2]["value"]["stringValue"], "n1");
  const TracesJson& spans = resource["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 10U);
  const TracesJson& root = spans[0];
  EXPECT_EQ(root["traceId"], kTrace);
  EXPECT_EQ(root["parentSpanId"], kSpan);
  EXPECT_EQ(root["name"], "POST /v1/chat/completions");
  EXPECT_EQ(root["kind"], 2);
  EXPECT_EQ(root["endTimeUnixNano"], "1800000000000000000");
  EXPECT_EQ(root["startTimeUnixNano"], "1799999999992500000");
  std::string at = root["startTimeUnixNano"];
  const char* names[] = {"prepare", "queue", "prefill", "decode"};
  const uint64_t lengths_us[] = {500, 1'000, 2'000, 4'000};
  for (size_t i = 0; i < 4; ++i) {
    const TracesJson& span = spans[i + 1];
    EXPECT_EQ(span["name"], names[i]);
    EXPECT_EQ(span["parentSpanId"], root["spanId"]);
    EXPECT_EQ(span["traceId"], kTrace);
    EXPECT_EQ(span["startTimeUnixNano"], at);
    EXPECT_EQ(std::stoull(span["endTimeUnixNano"].get<std::string>()) - std::stoull(at),
              lengths_us[i] * 1000);
    at = span["endTimeUnixNano"];
  }
  EXPECT_EQ(root["endTimeUnixNano"], at);
  // One without a parent begins a trace.
  EXPECT_NE(spans[5]["traceId"], kTrace);
  EXPECT_FALSE(spans[5].contains("parentSpanId"));
  EXPECT_FALSE(root.contains("status"));
}

TEST(Traces, FailuresSaySo) {
  FinishedRequest request = finished();
  request.status = 503;
  const TracesJson body = TracesJson::parse(spans_json({{request, 1'000'000'000}}, {}));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["status"]["code"], 2);
}

// A collector that takes one POST.
class Collector {
 public:
  explicit Collector(std::string answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_, 4), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { take_one(); });
  }
  ~Collector() {
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
  }
  const std::string& wait() {
    thread_.join();
    return seen_;
  }
  uint16_t port = 0;

 private:
  void take_one() {
    const int fd = ::accept(listener_, nullptr, nullptr);
    char buffer[65536];
    for (size_t wanted = SIZE_MAX; seen_.size() < wanted;) {
      const ssize_t count = ::recv(fd, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      seen_.append(buffer, static_cast<size_t>(count));
      const size_t head = seen_.find("\r\n\r\n"), field = seen_.find("Content-Length: ");
      if (head != std::string::npos) wanted = head + 4 + std::stoul(seen_.substr(field + 16));
    }
    EXPECT_EQ(::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer_.size()));
    ::close(fd);
  }

  const std::string answer_;
  int listener_ = -1;
  std::string seen_;
  std::thread thread_;
};

TEST(Traces, ACollectorGetsWhatCame) {
  Collector collector("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  Traces traces({"127.0.0.1", collector.port, "/v1/traces"}, {"n1", "1.0"});
  FinishedRequest silent = finished();
  silent.trace_parent = parent("00");
  traces.add(silent);
  traces.add(finished());
  const std::string& seen = collector.wait();
  EXPECT_TRUE(seen.starts_with("POST /v1/traces HTTP/1.1\r\n")) << seen.substr(0, 100);
  const TracesJson body = TracesJson::parse(seen.substr(seen.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 5U);  // one was not sampled
  EXPECT_EQ(traces.dropped(), 0U);
}

TEST(Traces, WhatNobodyTakesIsDroppedAndCounted) {
  {
    Collector collector("HTTP/1.1 500 No\r\n\r\n");
    Traces traces({"127.0.0.1", collector.port, "/"}, {});
    traces.add(finished());
    collector.wait();
    while (traces.dropped() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(traces.dropped(), 1U);
  }
  Traces nobody({"127.0.0.1", 1, "/"}, {});
  for (size_t i = 0; i < Traces::kMaxWaiting + 10; ++i) nobody.add(finished());
  while (nobody.dropped() < Traces::kMaxWaiting + 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Each byte comes before any patience with a single one has ended, and the answer never does.
TEST(Traces, ACollectorThatAnswersByteByByteHoldsNoExitUp) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::atomic<bool> is_asked{false};
  std::thread collector([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    is_asked = true;
    for (const char c : std::string_view("HTTP/1.1 200")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      if (::send(fd, &c, 1, MSG_NOSIGNAL) != 1) break;
    }
    ::close(fd);
  });
  auto traces = std::make_unique<Traces>(TraceEndpoint{"127.0.0.1", ntohs(address.sin_port), "/"},
                                         TraceSource{});
  traces->add(finished());
  while (!is_asked) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto began = std::chrono::steady_clock::now();
  traces = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
  collector.join();
  ::close(listener);
}

}  // namespace
}  // namespace skein
